/* Processes of the sandbox, from /proc. Run as pid 1 these are all of them, else the agent's descendants. */
#include "agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 100 };

struct process { pid_t pid, parent, group; uint64_t start; char state; };
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

/* New: started since `before`, by the shell or by nobody who still lives. A process that an older background job
   started belongs to that job. Zombies are not in the table, so an orphan's chain ends at the agent. */
static bool is_new(const struct table *table, const struct snapshot *before, const struct process *process, pid_t shell,
                   pid_t spare) {
    pid_t self = getpid();
    if (process->pid == self || process->pid == spare || process->pid == shell) return false;
    for (int depth = 0; process && depth < 10000; depth++) {
        if (process->pid == self || (shell && process->pid == shell)) return depth > 0;
        if (known(before, process)) return false;
        process = table_find(table, process->parent);
    }
    return self == 1;
}

size_t signal_new(const struct snapshot *before, pid_t shell, pid_t spare, int signal) {
    struct table table;
    size_t count = 0;
    table_read(&table);
    for (size_t i = 0; i < table.count; i++) {
        if (!is_new(&table, before, &table.rows[i], shell, spare)) continue;
        count++;
        kill(table.rows[i].pid, signal);
    }
    free(table.rows);
    return count;
}

void signal_youngest(pid_t parent, int signal) {
    struct table table;
    const struct process *youngest = NULL;
    table_read(&table);
    for (size_t i = 0; i < table.count; i++) {
        const struct process *row = &table.rows[i];
        if (row->parent == parent && (!youngest || row->start > youngest->start ||
                                      (row->start == youngest->start && row->pid > youngest->pid)))
            youngest = row;
    }
    if (youngest) kill(youngest->pid, signal);
    free(table.rows);
}

/* One kill(2) reaches a whole process group at once, which a fork bomb cannot outrun. */
void kill_groups(const struct snapshot *before, pid_t shell, pid_t spare) {
    struct table table;
    table_read(&table);
    for (size_t i = 0; i < table.count; i++)
        if (is_new(&table, before, &table.rows[i], shell, spare) && table.rows[i].group > 1 &&
            table.rows[i].group != getpgrp())
            kill(-table.rows[i].group, SIGKILL);
    free(table.rows);
}

void kill_everything(void) {
    if (getpid() == 1) {
        kill(-1, SIGKILL);
        return;
    }
    static const struct snapshot nothing;
    for (int round = 0; round < 1000 && signal_new(&nothing, 0, 0, SIGKILL); round++) kill_groups(&nothing, 0, 0);
}
