/* What test_header.py compiles: the header first and alone, twice, then one use of each kind of name it declares. */
#include "afmoe.h"
#include "afmoe.h"

int afmoe_header_use(void);

int afmoe_header_use(void)
{
    afmoe_model *model = 0;
    afmoe_error error;
    afmoe_model_options options;
    afmoe_status status;

    afmoe_error_init(&error, sizeof error);
    afmoe_model_options_init(&options, sizeof options);
    status = afmoe_model_open(&model, "", &options, &error);
    afmoe_model_free(model);
    return status == AFMOE_OK && error.code == AFMOE_OK && options.size == sizeof options;
}
