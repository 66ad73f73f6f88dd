/* The Echo tool of the llama.cpp agent (wit/llama-cpp-tool) in C, the canonical ABI written by hand:
   there is no wit-bindgen in Debian or PyPI. Results may be static: every call gets a fresh instance. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *data; size_t size; } text;
typedef struct { text name, value; } pair;
typedef struct { text name, description, type; uint8_t required; } param;
typedef struct { text user, assistent; } usage;
typedef struct { const void *data; size_t size; } list;
typedef struct { text name, description, version; list params, usage; } metadata;
typedef struct { uint8_t success; text data; uint8_t has_error; text error; } result;

#define TEXT(words) { words, sizeof(words) - 1 }

static const param params[] = {{TEXT("value"), TEXT("The text to echo back"), TEXT("string"), 1}};
static const usage usages[] = {{TEXT("Please echo back 'hello'"), TEXT("USE_TOOL: Echo, value=hello")}};
static const metadata about = {
    TEXT("Echo"), TEXT("Echoes back the text that it is given"), TEXT("0.1.0"), {params, 1}, {usages, 1}};
static result answer;

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
    (void)old_size; (void)align;
    void *memory = realloc(old, size ? size : 1);
    if (!memory) abort();
    return memory;
}

__attribute__((export_name("get-metadata"))) const metadata *get_metadata(void) { return &about; }

__attribute__((export_name("execute"))) const result *execute(const pair *given, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (given[i].name.size == 5 && !memcmp(given[i].name.data, "value", 5)) {
            answer.success = 1;
            answer.data = given[i].value;
            return &answer;
        }
    answer.has_error = 1;
    answer.error = (text)TEXT("Missing parameter: value");
    return &answer;
}

__attribute__((export_name("run"))) int32_t run(void) { return 0; }
