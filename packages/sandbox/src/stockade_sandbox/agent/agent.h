/* The agent: pid 1 of a sandbox. See README.md for the protocol. */
#ifndef STOCKADE_AGENT_H
#define STOCKADE_AGENT_H

#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROTOCOL_VERSION = 9, MAX_FRAME = 64 << 20, CHUNK = 64 << 10, HEADER = 5, MAX_EXPORTS = CHUNK - HEADER, MAX_ARGS = 4096, HOLD_MS = 3 };
enum { MAX_PROGRAMS = 128, MAX_CLIENTS = 64, MAX_CONNECTIONS = MAX_CLIENTS + 2 * MAX_PROGRAMS, MAX_LISTENERS = 32, MAX_POLLED = MAX_LISTENERS + 1 + 2 * MAX_CONNECTIONS };
#define CLIENT 0x80000000u       /* in the numbers of connections that clients inside have opened */

enum request {
    REQ_CONFIG = 1, REQ_RUN = 2, REQ_START = 3, REQ_KILL = 4, REQ_LISTEN = 5, REQ_DATA = 6, REQ_TAKEN = 7, REQ_CLOSE = 8,
    REQ_RESIZE = 9, REQ_SIGNAL = 10,
};
enum reply {
    REP_HELLO = 1, REP_OUT = 2, REP_DONE = 3, REP_LISTENING = 4, REP_OPENED = 5, REP_DATA = 6, REP_TAKEN = 7, REP_CLOSED = 8,
    REP_ENDED = 9, REP_EXPORTS = 10,
};
enum flag {
    TIMED_OUT = 1, KILLED = 2, SHELL_RESTORED = 4, SHELL_RESTARTED = 8, SYNTAX = 16, SPAWN_FAILED = 32, OUT_OF_TURN = 64,
    READABLE = 128,
};

/* stream.c: frames to and from the host */
struct frame { uint8_t type; uint32_t length; uint8_t *payload; };
void stream_open(int in, int out);
bool stream_next(struct frame *frame);         /* false: none complete yet; the payload is valid until the next call */
bool stream_pending(void);                     /* bytes wait for the host to read */
bool stream_room(void);                        /* a whole chunk fits */
void stream_flush(void);
void stream_hello(void);
size_t stream_output(uint32_t id, uint8_t stream, int fd, size_t limit);  /* read fd, send; bytes moved, 0: none there */
void stream_done(uint32_t id, uint32_t status, uint32_t flags, const char *cwd, const char *error);
void stream_listening(const char *error);
void stream_opened(uint32_t id, uint32_t address, uint32_t port);
void stream_exports(const char *text, size_t length);  /* at most MAX_EXPORTS, where there is room */
void stream_ended(uint32_t program, uint32_t status, uint32_t flags, const char *error);  /* where there is room */
void stream_numbers(uint8_t type, size_t count, uint32_t number, uint32_t second);  /* 1 or 2; where there is room */
ssize_t stream_data(uint32_t id, int fd, size_t limit);  /* read fd, send; as read(2), 0 is sent too */
uint32_t take_u32(const uint8_t **at, const uint8_t *end);                /* a frame too short ends the agent */
uint64_t take_u64(const uint8_t **at, const uint8_t *end);
char *take_string(const uint8_t **at, const uint8_t *end);               /* NUL-terminated, points into the frame */

/* procs.c: who runs here, and ending them */
struct snapshot { pid_t *pids; uint64_t *starts; size_t count; uint64_t newest; };
void snapshot_take(struct snapshot *snapshot);
void snapshot_renew(struct snapshot *snapshot);  /* the same, at the cost of one read when nothing was started since */
void procs_stale(void);                        /* time has passed since the last look */
bool descends(pid_t pid, pid_t ancestor);
pid_t parent_of(pid_t pid);
void kill_everything(void);
pid_t youngest_child(pid_t parent);            /* the one that was started last; 0: none */
pid_t oldest_child(pid_t parent);

/* Whose processes: those of the program of `holder`; else those of a command, new since `before`, but for its shell and
 * `spare`; else all. */
struct scope { const struct snapshot *before; pid_t shell, spare, holder; };
struct ending { uint64_t since_ms, killing_ms; };  /* zeroed at its beginning */
void kill_all(const struct scope *scope);
bool end_all(const struct scope *scope, struct ending *ending, uint32_t grace_ms);  /* again and again, until true: gone */
int end_timeout(const struct ending *ending);  /* in ms, for poll */

/* spawn.c: children with limits */
struct config { uint64_t nproc, nofile, fsize, data; uint32_t streams; char *cwd; char **shell; size_t shell_args; int shell_fd; uid_t user; };
struct child { pid_t pid; int status_fd; };
struct start { bool held, terminal, root; };   /* held: by a parent of its own, which `child` is; terminal: it is 0 */
bool spawn(struct child *child, const struct config *config, char *const argv[], int cwd_fd, const char *cwd,
           const int from[], const int to[], size_t count, struct start how);
const char *spawn_error(struct child *child);  /* after its death: why it never ran, or NULL; closes status_fd */
bool spawn_readable(struct child *child);      /* once it runs: it is no copy that nobody may read; closes status_fd */

/* shell.c. `checkpoint` sleeps with the state from before the last command; `dying` is the one before it. */
struct shell {
    struct child child;
    pid_t checkpoint, dying;
    bool fresh, waiting, thaw;
    bool pristine;               /* nothing was run in it yet */
    bool stale;                  /* the checkpoint is from before an older command than the last */
    uint64_t ran_ms;             /* when the last command ended */
    bool answered;               /* CONFIG */
    int text, exports, folder, trigger[2][2], in, report[2], out[2], err[2];  /* err[0] is -1 where both streams are one pipe */
    uint32_t flags;              /* what befell it since the last DONE */
    char last_cwd[PATH_MAX];
};
extern struct shell shell;
void shell_open(void);                         /* and start it */
const char *shell_cwd(void);
int shell_open_cwd(void);                      /* -1: it was deleted, or there is no shell */
void shell_trigger(void);                      /* the job's command, once the shell waits for one */
void shell_tell_exports(void);                 /* where they are others than last time; there is room */
void shell_forget_exports(void);               /* before it says them anew */
void shell_recover(void);                      /* a new shell for one that is gone: the checkpoint, else a fresh one */
void shell_thaw(void);                         /* the checkpoint, once the older one is gone */
void shell_read_reports(void);
void shell_died(int status);
void shell_hurry(void);                        /* where it takes long between two commands */
int shell_timeout(int otherwise);              /* in ms, for poll */

/* job.c */
enum { EXIT_TIMED_OUT = 124, EXIT_CANNOT = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };
enum phase { WAITING, RUNNING, ENDING, DRAINING };
struct job {
    bool active;
    enum phase phase;
    uint32_t id, timeout_ms, grace_ms, status, flags;
    uint64_t started_ms, deadline_ms;  /* the latter of the phase; 0: none */
    struct snapshot before;
    struct ending ending;
    int out[2];                  /* stdout and stderr as they are read */
    bool closed[2];
    int remaining[2];            /* DRAINING */
    char error[200];
};
extern struct job job;
uint64_t now_ms(void);
int ms_until(uint64_t deadline_ms);            /* for poll; 0 is no deadline */
int bytes_in(int fd);
uint32_t exit_status(int status);
void job_start_clock(void);
bool job_holds(void);                          /* what waits to be sent */
void job_finish(uint32_t status);
void job_cannot_spawn(const char *error);
void job_end(uint32_t why);                    /* before its own end: every process that it started */
void job_read_output(const struct pollfd polled[2]);
void job_advance(void);
int job_timeout(void);                         /* in ms, for poll */

/* connections.c: what clients inside open to one port of loopback, and streams of programs, carried to the host */
#define SSH_AGENT "/tmp/.ssh-agent"  /* where port 0 is listened on */
const char *connections_listen(uint16_t port, bool everywhere);  /* NULL, or why not */
void connections_data(const uint8_t *at, const uint8_t *end);
void connections_taken(const uint8_t *at, const uint8_t *end);
void connections_close(const uint8_t *at, const uint8_t *end);
size_t connections_poll(struct pollfd polled[MAX_POLLED]);  /* how many it set */
int connections_timeout(int otherwise);        /* in ms, for poll */
void connections_serve(const struct pollfd polled[MAX_POLLED]);
void connections_adopt(uint32_t id, int in, int out, bool terminal);  /* a program's pipes; -1: none */
bool connections_resize(uint32_t id, uint32_t size);  /* its terminal: 65536 * rows + columns */
pid_t connections_foreground(uint32_t id);     /* of its terminal, a process group; 0: none */
void connections_last(uint32_t id);            /* it has ended: what is in the pipe now is the last of it */
void connections_drop(uint32_t id);            /* the host knows that it is gone, or will at once */
bool connections_unread(uint32_t id);          /* some of that is still to be sent */

/* programs.c: programs beside the shell */
void programs_start(const uint8_t *at, const uint8_t *end);
void programs_kill(uint32_t number);           /* as if its time were over */
void programs_signal(const uint8_t *at, const uint8_t *end);
void programs_resize(const uint8_t *at, const uint8_t *end);
bool programs_hold(pid_t pid);                 /* it is the holder of one */
bool programs_are_young(void);                 /* what waits to be sent may wait a moment more */
int programs_timeout(int otherwise);           /* in ms, for poll */
void programs_died(pid_t pid, int status);     /* a child, perhaps one of them */
void programs_advance(void);

/* text.c: stdio would make the agent half as large again */
struct text { char *start, *at, *end; };       /* always NUL-terminated; what does not fit is cut */
struct text text_in(char *buffer, size_t size);
void text_add(struct text *text, const char *string);
void text_add_number(struct text *text, uint64_t number);
const char *proc_path(pid_t pid, const char *name);          /* static buffer */
bool read_number(const char **at, uint64_t *number);         /* skips blanks first; false: no number there */
const char *error_name(int error);

/* agent.c */
extern struct config config;
void new_pipe(int ends[2]);
_Noreturn void die(const char *why);

#endif
