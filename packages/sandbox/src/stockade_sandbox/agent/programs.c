/* Programs that live beside the shell until they end or are stopped. Their streams are connections (connections.c): one
 * for standard input and output, one for standard error. A program's number is that of the first. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_PROGRAMS = 16 };

static struct program {
    uint32_t number, errors;     /* its connections; number 0: a free place */
    struct child child;
    uint32_t status;
    char error[200];             /* why it never ran */
} programs[MAX_PROGRAMS];

/* Our end of a new stream, nonblocking, and the program's. */
static bool new_stream(int ends[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

static const char *start(struct program *one, char *const argv[]) {
    int stream[2] = {-1, -1}, errors[2] = {-1, -1};
    const char *error = NULL;
    *one = (struct program){.child = {.status_fd = -1}};
    if (!new_stream(stream) || !new_stream(errors)) {
        error = error_name(errno);
    } else {
        one->number = connections_adopt(stream[0]);
        one->errors = connections_adopt(errors[0]);
        const int from[] = {stream[1], stream[1], errors[1]}, to[] = {0, 1, 2};
        if (!one->number || !one->errors) error = "there are too many connections";
        else if (!spawn(&one->child, &config, argv, -1, config.cwd, from, to, 3)) error = error_name(errno);
    }
    if (error) {
        connections_drop(one->number);
        connections_drop(one->errors);
        if (!one->number && stream[0] >= 0) close(stream[0]);
        if (!one->errors && errors[0] >= 0) close(errors[0]);
        one->number = 0;
    }
    if (stream[1] >= 0) close(stream[1]);
    if (errors[1] >= 0) close(errors[1]);
    return error;
}

void programs_start(const uint8_t *at, const uint8_t *end) {
    uint32_t count = take_u32(&at, end);
    if (count == 0 || count > MAX_ARGS) die("bad arguments");
    char *argv[count + 1];
    for (uint32_t i = 0; i < count; i++) argv[i] = take_string(&at, end);
    argv[count] = NULL;
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        if (programs[i].number) continue;
        const char *error = start(&programs[i], argv);
        stream_started(error ? 0 : programs[i].number, programs[i].errors, error ? error : "");
        return;
    }
    stream_started(0, 0, "there are too many programs");
}

/* The group that it leads; whoever left that ends with the sandbox. */
void programs_stop(const uint8_t *at, const uint8_t *end) {
    uint32_t number = take_u32(&at, end);
    for (size_t i = 0; number && i < MAX_PROGRAMS; i++)
        if (programs[i].number == number && programs[i].child.pid && kill(-programs[i].child.pid, SIGKILL) < 0)
            kill(programs[i].child.pid, SIGKILL);  /* it leads none yet */
}

void programs_died(pid_t pid, int status) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        struct program *one = &programs[i];
        if (!one->number || one->child.pid != pid) continue;
        const char *error = spawn_error(&one->child);
        struct text text = text_in(one->error, sizeof one->error);
        text_add(&text, error ? error : "");
        one->status = exit_status(status);
        one->child.pid = 0;
    }
}

/* The host learns of an end after all that was written before it. */
void programs_advance(void) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        struct program *one = &programs[i];
        if (!one->number || one->child.pid || !stream_room()) continue;
        if (connections_unread(one->number) || connections_unread(one->errors)) continue;
        stream_ended(one->number, one->status, one->error);
        one->number = 0;
    }
}
