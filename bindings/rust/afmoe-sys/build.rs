//! Finds libafmoe, or builds it, and says how to link it; src/lib.rs has the order. No crate helps: pkg-config is a
//! program, and asking it takes less than a dependency does.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

/// What an archive of libafmoe leaves open, where nobody can be asked.
const PRIVATE_LIBRARIES: [&str; 3] = ["jansson", "m", "pthread"];

fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn fail(message: &str) -> ! {
    eprintln!("afmoe-sys: {message}");
    exit(1)
}

/// Standard output of a program, or what it complained about.
fn output_of(command: &mut Command) -> Result<String, String> {
    match command.output() {
        Err(error) => Err(format!("{command:?}: {error}")),
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        Ok(output) => Err(format!(
            "{command:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// The first version of the library that these declarations do not fit: before 1.0 every minor version may change all.
fn next_breaking_version() -> String {
    let number = |name: &str| env::var(name).unwrap().parse::<u32>().unwrap();
    match (number("CARGO_PKG_VERSION_MAJOR"), number("CARGO_PKG_VERSION_MINOR")) {
        (0, minor) => format!("0.{}.0", minor + 1),
        (major, _) => format!("{}.0.0", major + 1),
    }
}

/// "0.1" of a header: what has to agree before 1.0.
fn check_header(folder: &Path) {
    let path = folder.join("afmoe.h");
    println!("cargo:rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
    let number = |name: &str| -> Option<&str> {
        let after = text.split_once(name)?.1.trim_start().strip_prefix('=')?.trim_start();
        after.split(|c: char| !c.is_ascii_digit()).next()
    };
    let found = (number("AFMOE_VERSION_MAJOR"), number("AFMOE_VERSION_MINOR"));
    let wanted = (env::var("CARGO_PKG_VERSION_MAJOR").unwrap(), env::var("CARGO_PKG_VERSION_MINOR").unwrap());
    if found != (Some(&wanted.0), Some(&wanted.1)) {
        let found = format!("{}.{}", found.0.unwrap_or("?"), found.1.unwrap_or("?"));
        fail(&format!("{} is of version {found}, this crate is for {}.{}", path.display(), wanted.0, wanted.1));
    }
    println!("cargo:include={}", folder.display());
}

fn use_folder(folder: &str, is_static: bool) {
    println!("cargo:rustc-link-search=native={folder}");
    if !is_static {
        println!("cargo:rustc-link-lib=afmoe");
        return;
    }
    println!("cargo:rustc-link-lib=static=afmoe");
    for name in PRIVATE_LIBRARIES {
        println!("cargo:rustc-link-lib={name}");
    }
}

fn build_vendored() {
    let source = match variable("AFMOE_SOURCE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../.."),
    };
    if !source.join("include/afmoe.h").exists() {
        fail(&format!("vendored: no libafmoe in {}; AFMOE_SOURCE_DIR names a checkout of it", source.display()));
    }
    check_header(&source.join("include"));
    for part in ["include", "kernels", "lib", "meson.build", "meson_options.txt"] {
        println!("cargo:rerun-if-changed={}", source.join(part).display());
    }
    let build = Path::new(&env::var("OUT_DIR").unwrap()).join("libafmoe");
    let meson = variable("MESON").unwrap_or_else(|| "meson".to_string());
    let run = |command: &mut Command| output_of(command).unwrap_or_else(|why| fail(&format!("vendored: {why}")));
    if !build.join("build.ninja").exists() {
        let options = ["-Dauto_features=disabled", "-Ddefault_library=static", "-Dbuildtype=release", "-Db_pie=true"];
        run(Command::new(&meson).arg("setup").arg(&build).arg(&source).args(options));
    }
    run(Command::new(&meson).arg("compile").arg("-C").arg(&build).arg("afmoe:static_library"));
    use_folder(&build.join("lib").display().to_string(), true);
}

fn use_pkg_config(is_static: bool) {
    let program = variable("PKG_CONFIG").unwrap_or_else(|| "pkg-config".to_string());
    for name in ["PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"] {
        variable(name);
    }
    if env::var("HOST").ok() != env::var("TARGET").ok()
        && variable("PKG_CONFIG").is_none()
        && variable("PKG_CONFIG_SYSROOT_DIR").is_none()
    {
        fail("cross-compiling: set PKG_CONFIG or PKG_CONFIG_SYSROOT_DIR, or AFMOE_LIB_DIR");
    }
    let ask = |words: &[&str]| output_of(Command::new(&program).args(words));
    let version = ask(&["--modversion", "afmoe"]).unwrap_or_else(|why| {
        fail(&format!(
            "libafmoe was not found.\n{why}\n\
             Install it (and set PKG_CONFIG_PATH where it is not under /usr), name its folder in AFMOE_LIB_DIR, or use \
             the feature `vendored`."
        ))
    });
    let (least, below) = (env!("CARGO_PKG_VERSION"), next_breaking_version());
    if ask(&["--atleast-version", least, "afmoe"]).is_err() || ask(&["--atleast-version", &below, "afmoe"]).is_ok() {
        fail(&format!("libafmoe {version} was found, this crate is for {least} and later ones below {below}"));
    }
    let words: &[&str] = if is_static { &["--libs", "--static", "afmoe"] } else { &["--libs", "afmoe"] };
    for word in ask(words).unwrap_or_else(|why| fail(&why)).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(name) = word.strip_prefix("-l") {
            let kind = if is_static && name == "afmoe" { "static=" } else { "" };
            println!("cargo:rustc-link-lib={kind}{name}");
        } else if word == "-pthread" {
            println!("cargo:rustc-link-lib=pthread");
        }
    }
    if let Ok(folder) = ask(&["--variable=includedir", "afmoe"]) {
        println!("cargo:include={folder}");
    }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if variable("DOCS_RS").is_some() {
        return;
    }
    let is_static = variable("AFMOE_STATIC").map_or(false, |value| value != "0");
    if let Some(folder) = variable("AFMOE_LIB_DIR") {
        use_folder(&folder, is_static);
        if let Some(folder) = variable("AFMOE_INCLUDE_DIR") {
            check_header(Path::new(&folder));
        }
    } else if env::var_os("CARGO_FEATURE_VENDORED").is_some() {
        build_vendored();
    } else {
        use_pkg_config(is_static);
    }
}
