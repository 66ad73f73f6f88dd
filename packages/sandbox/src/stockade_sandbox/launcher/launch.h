/* launch: what its two halves share. */
#ifndef STOCKADE_LAUNCH_H
#define STOCKADE_LAUNCH_H

#include <stddef.h>
#include <sys/types.h>

enum { FIRST_FD = 3, HIGH_FD = 64, STATUS = 125 };

/* launch.c */
void fail(const char *op, const char *arg); /* with errno; does not return */
void check(int bad, const char *op, const char *arg);
unsigned long number(const char *text);
int open_file(const char *path, int flags, mode_t mode);
void write_file(const char *op, const char *path, const char *text, size_t length, int flags, mode_t mode);
void write_text(const char *op, const char *path, const char *text);

/* trace.c: with `trace`, the guard sees what is started */
void op_trace(char **args);
int traces(void);
int keep_traces(int first);
void begin_trace(pid_t pid);
pid_t wait_traced(pid_t ward, int *status);

/* mounts.c: operations on mounts and on what is put below them; each says at its own what its arguments are */
void op_mountns(char **args);
void op_tree(char **args);
void op_one(char **args);
void op_attributes(char **args);
void op_idmap(char **args);
void op_tmpfs(char **args);
void op_dir(char **args);
void op_link(char **args);
void op_file(char **args);
void op_program(char **args);
void op_place(char **args);
void op_show(char **args);
void op_overlay(char **args);
void op_proc(char **args);
void op_root(char **args);
void op_devices(char **args);
void op_pts(char **args);
void op_seal(char **args);

#endif
