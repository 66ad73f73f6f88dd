/* Processes of the sandbox, from /proc. Run as pid 1 these are all of them, else the agent's descendants. */
#include "agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 100, KILL_ROUNDS = 4, GROUPS_MS = 200, ALL_MS = 5000, TERMINATE_TICK_MS = 10, KILL_TICK_MS = 1 };

struct process { pid_t pid, parent, group, holder; uint64_t start; char state; };  /* holder: of the program it belongs to */
struct table { struct process *rows; size_t count, size; };

/* proc(5) stat: the name is in brackets and may hold anything, so fields are counted from the last bracket. */
static bool read_process(pid_t pid, struct process *process) {
    char text[1024];
    int fd = open(proc_path(pid, "stat"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return false;
    text[length] = 0;
    const char *rest = strrchr(text, ')');
    if (!rest || strlen(rest) < 4) return false;
    uint64_t fields[23] = {0};
    process->state = rest[2];
    rest += 3;
    for (int i = 4; i <= 22; i++) {
        while (*rest == ' ' || *rest == '-') rest++;
        if (!read_number(&rest, &fields[i])) return false;
    }
    process->pid = pid;
    process->parent = (pid_t)fields[4];
    process->group = (pid_t)fields[5];
    process->start = fields[22];
    return true;
}

static void table_read(struct table *table) {
    *table = (struct table){0};
    DIR *proc = opendir("/proc");
    if (!proc) die("/proc cannot be read");
    for (struct dirent *entry; (entry = readdir(proc));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0) continue;
        if (table->count == table->size) {
            table->size = table->size ? 2 * table->size : 64;
            table->rows = realloc(table->rows, table->size * sizeof *table->rows);
            if (!table->rows) die("no memory for the list of processes");
        }
        struct process *row = &table->rows[table->count];
        if (read_process(pid, row) && row->state != 'Z' && row->state != 'X') table->count++;
    }
    closedir(proc);
}

static const struct process *table_find(const struct table *table, pid_t pid) {
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].pid == pid) return &table->rows[i];
    return NULL;
}

static bool known(const struct snapshot *before, const struct process *process) {
    for (size_t i = 0; i < before->count; i++)
        if (before->pids[i] == process->pid && before->starts[i] == process->start) return true;
    return false;
}

/* The pid given out last in this namespace, proc_loadavg(5); 0 where the kernel does not tell. */
static uint64_t newest_pid(void) {
    static int fd = -1;
    char text[128];
    if (fd < 0) fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    const char *last = strrchr(text, ' ');
    uint64_t pid;
    return last && read_number(&last, &pid) ? pid : 0;
}

void snapshot_renew(struct snapshot *snapshot) {
    if (!snapshot->newest || snapshot->newest != newest_pid()) snapshot_take(snapshot);
}

void snapshot_take(struct snapshot *snapshot) {
    struct table table;
    snapshot->newest = newest_pid();
    table_read(&table);
    free(snapshot->pids);
    free(snapshot->starts);
    snapshot->count = 0;
    snapshot->pids = malloc(table.count * sizeof *snapshot->pids);
    snapshot->starts = malloc(table.count * sizeof *snapshot->starts);
    if (!snapshot->pids || !snapshot->starts) die("no memory for the list of processes");
    for (size_t i = 0; i < table.count; i++) {
        snapshot->pids[snapshot->count] = table.rows[i].pid;
        snapshot->starts[snapshot->count++] = table.rows[i].start;
    }
    free(table.rows);
}

pid_t parent_of(pid_t pid) {
    struct process process;
    return read_process(pid, &process) ? process.parent : 0;
}

/* A process between the two may end while they are read; whom it started has another parent then, so it is read again. */
bool descends(pid_t pid, pid_t ancestor) {
    for (int round = 0; round < ROUNDS && parent_of(pid); round++) {
        pid_t at = pid;
        for (int depth = 0; at > 1 && at != ancestor && depth < 10000; depth++) at = parent_of(at);
        if (at == ancestor) return true;
        if (at == 1) return false;
    }
    return false;
}

static pid_t holder_of(const struct table *table, const struct process *process) {
    for (int depth = 0; process && depth < 10000; depth++, process = table_find(table, process->parent))
        if (programs_hold(process->pid)) return process->pid;
    return 0;
}

static struct table seen;
static bool is_stale = true;

void procs_stale(void) { is_stale = true; }

/* One look is for all whom this round of the loop ends. */
static void look(void) {
    if (!is_stale) return;
    free(seen.rows);
    table_read(&seen);
    for (size_t i = 0; i < seen.count; i++) seen.rows[i].holder = holder_of(&seen, &seen.rows[i]);
    is_stale = false;
}

/* A program's: below its holder, whatever it left and whichever session it opened, for the holder adopts. A command's: new
   since `before`, of the shell or of nobody who still lives, and no program's. A process that an older background job
   started belongs to that job. Zombies are not in the table, so an orphan's chain ends at the agent. */
static bool belongs(const struct scope *scope, const struct process *process) {
    pid_t self = getpid();
    if (process->pid == self || process->pid == scope->spare || process->pid == scope->shell) return false;
    if (scope->holder) return process->holder == scope->holder && process->pid != scope->holder;
    if (scope->before && process->holder) return false;
    for (int depth = 0; process && depth < 10000; depth++) {
        if (process->pid == self || process->pid == scope->shell) return depth > 0;
        if (scope->before && known(scope->before, process)) return false;
        process = table_find(&seen, process->parent);
    }
    return self == 1;
}

static size_t signal_all(const struct scope *scope, int signal) {
    size_t count = 0;
    look();
    for (size_t i = 0; i < seen.count; i++) {
        if (!belongs(scope, &seen.rows[i])) continue;
        count++;
        kill(seen.rows[i].pid, signal);
    }
    return count;
}

static pid_t child_at(pid_t parent, bool last) {
    struct table table;
    const struct process *found = NULL;
    table_read(&table);
    for (size_t i = 0; i < table.count; i++) {
        const struct process *row = &table.rows[i];
        if (row->parent != parent) continue;
        bool later = !found || row->start > found->start || (row->start == found->start && row->pid > found->pid);
        if (!found || later == last) found = row;
    }
    pid_t pid = found ? found->pid : 0;
    free(table.rows);
    return pid;
}

pid_t youngest_child(pid_t parent) { return child_at(parent, true); }

pid_t oldest_child(pid_t parent) { return child_at(parent, false); }

/* One kill(2) reaches a whole process group at once, which a fork bomb cannot outrun. */
static void kill_groups(const struct scope *scope) {
    look();
    for (size_t i = 0; i < seen.count; i++)
        if (belongs(scope, &seen.rows[i]) && seen.rows[i].group > 1 && seen.rows[i].group != getpgrp())
            kill(-seen.rows[i].group, SIGKILL);
}

/* The state of the shell is lost with `kill(-1)`: not for what only dies slowly, on a machine with much else to do. */
bool end_all(const struct scope *scope, struct ending *ending, uint32_t grace_ms) {
    uint64_t now = now_ms();
    if (!ending->since_ms) {
        signal_all(scope, SIGTERM);
        signal_all(scope, SIGCONT);
        ending->since_ms = now;
    }
    if (!ending->killing_ms && now < ending->since_ms + grace_ms && signal_all(scope, 0)) return false;
    if (!ending->killing_ms) ending->killing_ms = now;
    if (scope->shell) kill(scope->shell, SIGKILL);
    size_t left = signal_all(scope, SIGKILL);
    if (left && now - ending->killing_ms >= GROUPS_MS) kill_groups(scope);
    if (left && now - ending->killing_ms >= ALL_MS && getpid() == 1) kill(-1, SIGKILL);
    return !left;
}

int end_timeout(const struct ending *ending) { return ending->killing_ms ? KILL_TICK_MS : ending->since_ms ? TERMINATE_TICK_MS : 0; }

/* What is forked meanwhile is met in the next round; what survives them all, by whoever asks again. */
void kill_all(const struct scope *scope) {
    for (int round = 0; round < KILL_ROUNDS; round++) {
        procs_stale();
        if (!signal_all(scope, round ? SIGKILL : SIGSTOP)) return;
    }
}

void kill_everything(void) {
    if (getpid() == 1) {
        kill(-1, SIGKILL);
        return;
    }
    static const struct scope all;
    for (int round = 0; round < 1000; round++) {
        procs_stale();
        if (!signal_all(&all, SIGKILL)) return;
        kill_groups(&all);
    }
}
