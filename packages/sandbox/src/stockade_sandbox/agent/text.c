/* Text without stdio. */
#include "agent.h"

#include <errno.h>
#include <string.h>

struct text text_in(char *buffer, size_t size) {
    buffer[0] = 0;
    return (struct text){buffer, buffer, buffer + size - 1};
}

void text_add(struct text *text, const char *string) {
    while (*string && text->at < text->end) *text->at++ = *string++;
    *text->at = 0;
}

void text_add_number(struct text *text, uint64_t number) {
    char digits[21], *at = digits + sizeof digits - 1;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    text_add(text, at);
}

const char *proc_path(pid_t pid, const char *name) {
    static char path[48];
    struct text text = text_in(path, sizeof path);
    text_add(&text, "/proc/");
    text_add_number(&text, (uint64_t)pid);
    text_add(&text, "/");
    text_add(&text, name);
    return path;
}

bool read_number(const char **at, uint64_t *number) {
    while (**at == ' ') (*at)++;
    if (**at < '0' || **at > '9') return false;
    for (*number = 0; **at >= '0' && **at <= '9'; (*at)++) *number = *number * 10 + (uint64_t)(**at - '0');
    return true;
}

const char *error_name(int error) {
    switch (error) {
        case ENOENT: return "No such file or directory";
        case EACCES: return "Permission denied";
        case ENOEXEC: return "Exec format error";
        case ENOTDIR: return "Not a directory";
        case EAGAIN: return "Too many processes";
        case ENOMEM: return "Cannot allocate memory";
        case E2BIG: return "Argument list too long";
        case EPERM: return "Operation not permitted";
        case EMFILE: return "Too many open files";
        case ENAMETOOLONG: return "File name too long";
        case ELOOP: return "Too many levels of symbolic links";
        case ETXTBSY: return "Text file busy";
        case EADDRINUSE: return "Address in use";
        case EISDIR: return "Is a directory";
        case EINVAL: return "Invalid argument";
        default: return "Input/output error";
    }
}
