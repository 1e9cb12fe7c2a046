// Lesson 7: from C++17. Each object becomes a unique_ptr with the library's own free, each failure an exception.
// Nothing of C++ crosses the border: a callback may not throw through the library, so it keeps its exception for later.
//
//     07-raii [MODEL [QUESTION]]
#include <afmoe.h>

#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

template <typename T, void (*free)(T *)> struct Free {
    void operator()(T *object) const noexcept { free(object); }
};
using Model = std::unique_ptr<afmoe_model, Free<afmoe_model, afmoe_model_free>>;
using Context = std::unique_ptr<afmoe_context, Free<afmoe_context, afmoe_context_free>>;
using Session = std::unique_ptr<afmoe_session, Free<afmoe_session, afmoe_session_free>>;

struct Failure : std::runtime_error {
    explicit Failure(const afmoe_error &error)
        : std::runtime_error(std::string(afmoe_status_name(error.code)) + ": " + error.message), status(error.code) {}
    afmoe_status status;
};

// Call f(arguments.., &error); its status when it is good or a remark, else Failure.
template <typename F, typename... Arguments> afmoe_status call(F f, Arguments... arguments)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    const afmoe_status status = f(arguments..., &error);
    if (status < 0) throw Failure(error);
    return status;
}

// The object a create or open call hands out through its first argument.
template <typename Pointer, typename F, typename... Arguments> Pointer make(F f, Arguments... arguments)
{
    typename Pointer::pointer object = nullptr;
    call(f, &object, arguments...);
    return Pointer(object);
}

// Ask for the count, then for the tokens.
std::vector<afmoe_token> prompt_of(const afmoe_model *model, std::string_view question)
{
    const char *role = "user", *content = question.data();
    const std::uint64_t content_bytes = question.size(), n_messages = 1;
    afmoe_chat_options options;
    afmoe_chat_options_init(&options, sizeof options);
    options.content_bytes = &content_bytes; // a string_view has no zero at its end
    std::uint64_t n = 0;
    const afmoe_status status = afmoe_chat_tokenize(model, &role, &content, 1, &options, nullptr, 0, &n, nullptr);
    std::vector<afmoe_token> tokens(status == AFMOE_CAPACITY ? n : 0);
    call(afmoe_chat_tokenize, model, &role, &content, n_messages, &options, tokens.data(), tokens.size(), &n);
    return tokens;
}

// Calls on_text(std::string_view) with every piece; what it throws comes out of here.
template <typename OnText> void generate(afmoe_session *session, std::uint64_t max_tokens, OnText on_text)
{
    struct State {
        OnText &on_text;
        std::exception_ptr thrown;
    } state{on_text, nullptr};
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = max_tokens;
    options.on_piece_data = &state;
    options.on_piece = [](void *user_data, const afmoe_piece *piece) -> std::int32_t {
        auto *mine = static_cast<State *>(user_data);
        try {
            mine->on_text(std::string_view(piece->text, piece->text_bytes));
            return 0;
        } catch (...) {
            mine->thrown = std::current_exception();
            return 1;
        }
    };
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    const afmoe_status status = afmoe_generate(session, nullptr, &options, nullptr, &error);
    if (state.thrown) std::rethrow_exception(state.thrown);
    if (status < 0) throw Failure(error);
}

void answer(const char *path, std::string_view question)
{
    const Model model = make<Model>(afmoe_model_open, path, nullptr);
    const Context context = make<Context>(afmoe_context_create, model.get(), nullptr);
    const Session session = make<Session>(afmoe_session_create, context.get());
    const std::vector<afmoe_token> prompt = prompt_of(model.get(), question);
    call(afmoe_session_append, session.get(), prompt.data(), prompt.size(), nullptr, nullptr);
    generate(session.get(), 200, [](std::string_view text) {
        if (!(std::cout << text << std::flush)) throw std::runtime_error("standard output cannot be written to");
    });
    std::cout << '\n';
}

} // namespace

int main(int argc, char **argv)
{
    try {
        answer(argc > 1 ? argv[1] : "models/pico-q8_0.gguf", argc > 2 ? argv[2] : "What is the capital of France?");
        return 0;
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << '\n';
        return 1;
    }
}
