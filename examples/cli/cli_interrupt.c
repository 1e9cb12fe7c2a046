/* Ctrl-C stops what is being computed, through a cancel object. */
#include "cli.h"

#include <signal.h>

afmoe_cancel *interrupt;
static struct sigaction before;
static bool is_watched;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    afmoe_cancel_set(interrupt);
}

int watch_interrupt(enum interrupts interrupts)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_cancel_create(&interrupt, &error) != AFMOE_OK) return complain_error(&error);
    if (interrupts == INTERRUPT_NEVER) return EXIT_OK;
    /* No SA_RESTART: Ctrl-C ends a read. */
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = interrupts == INTERRUPT_ONCE ? (int)SA_RESETHAND : 0};
    sigemptyset(&action.sa_mask);
    is_watched = sigaction(SIGINT, &action, &before) == 0;
    return EXIT_OK;
}

void unwatch_interrupt(void)
{
    if (is_watched) sigaction(SIGINT, &before, NULL);
    is_watched = false;
    afmoe_cancel_free(interrupt);
    interrupt = NULL;
}
