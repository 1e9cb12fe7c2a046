/* Public calls that save and load a session. */
#include "handles.h"
#include "structs.h"

#ifdef AFMOE_HAVE_STATE

#include "fingerprint.h"
#include "state.h"

uint64_t afmoe__model_fingerprint(const afmoe_model *model)
{
    return afmoe__checkpoint_fingerprint(&model->checkpoint);
}

static uint64_t fingerprint_of(const afmoe_session *session)
{
    return afmoe__model_fingerprint(session->context->model);
}

afmoe_status afmoe_session_save(afmoe_session *session, const char *path, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(path, "path", error);
    if (status == AFMOE_OK) status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__session_save(session->core, fingerprint_of(session), path, true, error);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_save_memory(afmoe_session *session, void *out, uint64_t capacity, uint64_t *out_n,
                                       afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    uint64_t n = afmoe__session_state_bytes(session->core);
    status = afmoe__check_capacity(out, capacity, n, out_n, error);
    if (status == AFMOE_OK) status = afmoe__session_save_memory(session->core, fingerprint_of(session), out, error);
    afmoe__session_leave(session);
    return status;
}

/* Takes the file over. */
static afmoe_status load(afmoe_session *session, struct mapped_file *file, afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter_to_change(session, error);
    if (status == AFMOE_OK) {
        status = afmoe__session_load(session->core, fingerprint_of(session), file, error);
        afmoe__session_leave(session);
    }
    afmoe__file_close(file);
    return status;
}

afmoe_status afmoe_session_load(afmoe_session *session, const char *path, afmoe_error *error)
{
    struct mapped_file file;
    afmoe_status status = afmoe__check_argument(path, "path", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(session, "session", error);
    if (status == AFMOE_OK) status = afmoe__file_open(&file, path, FILE_PEEKED, error);
    return status == AFMOE_OK ? load(session, &file, error) : status;
}

afmoe_status afmoe_session_load_memory(afmoe_session *session, const void *data, uint64_t n_bytes, afmoe_error *error)
{
    struct mapped_file file;
    afmoe_status status = afmoe__check_argument(data, "data", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(session, "session", error);
    if (status == AFMOE_OK) status = afmoe__file_open_memory(&file, data, n_bytes, FILE_MAPPED, error);
    return status == AFMOE_OK ? load(session, &file, error) : status;
}

#else

uint64_t afmoe__model_fingerprint(const afmoe_model *model)
{
    (void)model;
    return 0;
}

static afmoe_status no_state(const afmoe_session *session, const void *argument, const char *name, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(session, "session", error);
    if (status == AFMOE_OK && name) status = afmoe__check_argument(argument, name, error);
    if (status != AFMOE_OK) return status;
    return afmoe__fail(error, AFMOE_UNSUPPORTED, "this build cannot save and load sessions: it was made without the "
                                                 "option 'state', which needs xxhash.h");
}

afmoe_status afmoe_session_save(afmoe_session *session, const char *path, afmoe_error *error)
{
    return no_state(session, path, "path", error);
}

afmoe_status afmoe_session_load(afmoe_session *session, const char *path, afmoe_error *error)
{
    return no_state(session, path, "path", error);
}

afmoe_status afmoe_session_save_memory(afmoe_session *session, void *out, uint64_t capacity, uint64_t *out_n,
                                       afmoe_error *error)
{
    (void)out;
    (void)capacity;
    (void)out_n;
    return no_state(session, NULL, NULL, error);
}

afmoe_status afmoe_session_load_memory(afmoe_session *session, const void *data, uint64_t n_bytes, afmoe_error *error)
{
    (void)n_bytes;
    return no_state(session, data, "data", error);
}

#endif
