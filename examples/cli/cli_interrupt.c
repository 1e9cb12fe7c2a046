/* Ctrl-C stops what is being computed, through a cancel object, and ends waiting for input, through a pipe: the signal may
 * come just before the wait begins, and may be handled by any thread. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

afmoe_cancel *interrupt;
static struct sigaction before;
static bool is_watched;
static int wake[2]; /* read end, write end */

static void on_interrupt(int signal_number)
{
    int kept = errno;
    (void)signal_number;
    afmoe_cancel_set(interrupt);
    if (write(wake[1], "", 1) < 0) { /* full: it wakes all the same */
    }
    errno = kept;
}

static bool open_wake(void)
{
    if (pipe(wake) != 0) {
        complain("a pipe: %s", strerror(errno));
        return false;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(wake[i], F_SETFL, O_NONBLOCK);
        fcntl(wake[i], F_SETFD, FD_CLOEXEC);
    }
    return true;
}

int watch_interrupt(enum interrupts interrupts)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_cancel_create(&interrupt, &error) != AFMOE_OK) return complain_error(&error);
    if (interrupts == INTERRUPT_NEVER) return EXIT_OK;
    if (!open_wake()) return EXIT_FAILED;
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = interrupts == INTERRUPT_ONCE ? (int)SA_RESETHAND : 0};
    sigemptyset(&action.sa_mask);
    is_watched = sigaction(SIGINT, &action, &before) == 0;
    return EXIT_OK;
}

void clear_interrupt(void)
{
    char bytes[64];
    while (is_watched && read(wake[0], bytes, sizeof bytes) > 0) {
    }
    afmoe_cancel_clear(interrupt);
}

bool wait_for_input(void)
{
    struct pollfd both[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
    if (!is_watched) return true;
    while (!afmoe_cancel_is_set(interrupt) && poll(both, 2, -1) < 0 && errno == EINTR) {
    }
    return !afmoe_cancel_is_set(interrupt);
}

void unwatch_interrupt(void)
{
    if (is_watched) {
        sigaction(SIGINT, &before, NULL);
        close(wake[0]);
        close(wake[1]);
    }
    is_watched = false;
    afmoe_cancel_free(interrupt);
    interrupt = NULL;
}
