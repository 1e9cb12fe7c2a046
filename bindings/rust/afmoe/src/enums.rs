//! Choices that `afmoe.h` gives numbers.

use crate::sys;

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $constant:ident,)+ })+) => {$(
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$item_doc])* $item,)+
            /// A number that this version of the crate has no name for.
            Other(i32),
        }

        impl $name {
            #[allow(dead_code)] // some only come out, some only go in
            pub(crate) fn from_raw(raw: i32) -> $name {
                match raw {
                    $(sys::$constant => $name::$item,)+
                    other => $name::Other(other),
                }
            }

            #[allow(dead_code)]
            pub(crate) fn raw(self) -> i32 {
                match self {
                    $($name::$item => sys::$constant,)+
                    $name::Other(other) => other,
                }
            }
        }
    )+};
}

choices! {
    /// How urgent a line of log is.
    LogLevel {
        /// What was chosen.
        Info = AFMOE_LOG_INFO,
        /// What may be wrong.
        Warning = AFMOE_LOG_WARNING,
    }

    /// Where weights are while a model is open.
    Load {
        /// In the mapped file; the system shares and drops its pages.
        Map = AFMOE_LOAD_MAP,
        /// In private memory: what goes wrong with the file is an error, never a signal.
        Read = AFMOE_LOAD_READ,
    }

    /// The kind of a checkpoint's files.
    Container {
        /// A folder with safetensors.
        Safetensors = AFMOE_CONTAINER_SAFETENSORS,
        /// A GGUF file.
        Gguf = AFMOE_CONTAINER_GGUF,
        /// A `tokenizer.json`.
        Tokenizer = AFMOE_CONTAINER_TOKENIZER,
    }

    /// How the tensors of a checkpoint are named.
    Layout {
        /// It has none.
        None = AFMOE_LAYOUT_NONE,
        /// As on the hub, one tensor for each expert.
        Hub = AFMOE_LAYOUT_HUB,
        /// Experts stacked in one tensor.
        Stacked = AFMOE_LAYOUT_STACKED,
        /// As prime-rl writes them.
        PrimeRl = AFMOE_LAYOUT_PRIME_RL,
        /// As in GGUF.
        Gguf = AFMOE_LAYOUT_GGUF,
    }

    /// What the router makes of its scores.
    ScoreFunction {
        /// Each expert by itself.
        Sigmoid = AFMOE_SCORE_SIGMOID,
        /// All together.
        Softmax = AFMOE_SCORE_SOFTMAX,
    }

    /// How rotary positions are scaled.
    RopeKind {
        /// Not at all.
        Default = AFMOE_ROPE_DEFAULT,
        /// All by one factor.
        Linear = AFMOE_ROPE_LINEAR,
        /// By a factor that depends on the length.
        Dynamic = AFMOE_ROPE_DYNAMIC,
        /// Low frequencies only.
        Llama3 = AFMOE_ROPE_LLAMA3,
        /// YaRN.
        Yarn = AFMOE_ROPE_YARN,
    }

    /// What a token is.
    TokenKind {
        /// A piece of text.
        Normal = AFMOE_TOKEN_NORMAL,
        /// Added and special: `<|im_end|>`.
        Control = AFMOE_TOKEN_CONTROL,
        /// Added, not special: `<think>`.
        Added = AFMOE_TOKEN_ADDED,
        /// A row of the output without a token: never generated.
        Unused = AFMOE_TOKEN_UNUSED,
    }

    /// CPU levels; each includes those before it, except that a CPU of level `Avx512` or higher may lack AVX-VNNI.
    CpuLevel {
        /// The highest this machine has.
        Auto = AFMOE_CPU_AUTO,
        /// Plain C, the readable reference.
        C = AFMOE_CPU_C,
        /// AVX2, FMA and F16C.
        Avx2 = AFMOE_CPU_AVX2,
        /// And AVX-VNNI.
        AvxVnni = AFMOE_CPU_AVXVNNI,
        /// AVX-512 F, BW, VL and DQ.
        Avx512 = AFMOE_CPU_AVX512,
        /// And the Ice Lake bundle.
        Avx512Icl = AFMOE_CPU_AVX512ICL,
        /// And AVX512-BF16.
        Avx512Bf16 = AFMOE_CPU_AVX512BF16,
    }

    /// The arithmetic of products with weights.
    Precision {
        /// float32 on exactly decoded weights.
        Exact = AFMOE_PRECISION_EXACT,
        /// Quantised activations.
        Fast = AFMOE_PRECISION_FAST,
    }

    /// How keys and values are kept.
    Cells {
        /// `F32` with [`Precision::Exact`], `Bf16` with [`Precision::Fast`].
        Auto = AFMOE_CELLS_AUTO,
        /// As float32.
        F32 = AFMOE_CELLS_F32,
        /// In half the memory, as float16.
        F16 = AFMOE_CELLS_F16,
        /// In half the memory, as bfloat16.
        Bf16 = AFMOE_CELLS_BF16,
        /// In a good quarter of the memory, as whole numbers of 8 bits with scales.
        Q8_0 = AFMOE_CELLS_Q8_0,
    }

    /// Which hidden states make the vector of a text.
    Pooling {
        /// The mean over all positions.
        Mean = AFMOE_POOL_MEAN,
        /// The last position.
        Last = AFMOE_POOL_LAST,
    }

    /// Why a generation ended.
    Finish {
        /// Nothing has ended yet.
        None = AFMOE_FINISH_NONE,
        /// `max_tokens` were generated.
        Length = AFMOE_FINISH_LENGTH,
        /// A token of the stop set.
        StopToken = AFMOE_FINISH_STOP_TOKEN,
        /// A stop string.
        StopString = AFMOE_FINISH_STOP_STRING,
        /// A [`Cancel`](crate::Cancel), or the callback.
        Cancelled = AFMOE_FINISH_CANCELLED,
        /// The session or its context is full.
        Context = AFMOE_FINISH_CONTEXT,
        /// A failure, which was returned.
        Error = AFMOE_FINISH_ERROR,
    }
}
