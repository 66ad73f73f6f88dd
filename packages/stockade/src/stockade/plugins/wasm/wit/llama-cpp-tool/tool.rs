// The Echo tool of the llama.cpp agent (wit/llama-cpp-tool) in Rust, the canonical ABI written by hand, so that rustc is
// all it takes. With cargo and crates.io there is wit-bindgen. Results are leaked: every call gets a fresh instance.
use std::alloc::{self, Layout};

#[repr(C)]
pub struct Text(*const u8, usize);
#[repr(C)]
pub struct List<T>(*const T, usize);
#[repr(C)]
pub struct Pair(Text, Text);
/// name, description, type, required
#[repr(C)]
pub struct Param(Text, Text, Text, bool);
/// user, assistent
#[repr(C)]
pub struct Usage(Text, Text);
/// name, description, version, params, usage
#[repr(C)]
pub struct Metadata(Text, Text, Text, List<Param>, List<Usage>);
/// success, data, error
#[repr(C)]
pub struct Answer(bool, Text, bool, Text);

fn text(words: &str) -> Text {
    Text(words.as_ptr(), words.len())
}

fn list<T>(items: Vec<T>) -> List<T> {
    let kept = items.leak();
    List(kept.as_ptr(), kept.len())
}

fn given<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// What the tool does with its arguments. An error is told to the model.
fn done(arguments: &[(&'static str, &'static str)]) -> Result<String, String> {
    match arguments.iter().find(|(name, _)| *name == "value") {
        Some((_, value)) => Ok(value.to_string()),
        None => Err("Missing parameter: value".to_string()),
    }
}

#[export_name = "get-metadata"]
pub extern "C" fn get_metadata() -> &'static Metadata {
    ready();
    given(Metadata(
        text("Echo"),
        text("Echoes back the text that it is given"),
        text("0.1.0"),
        list(vec![Param(text("value"), text("The text to echo back"), text("string"), true)]),
        list(vec![Usage(text("Please echo back 'hello'"), text("USE_TOOL: Echo, value=hello"))]),
    ))
}

/// # Safety
/// The host gives `count` pairs at `pairs`, each of UTF-8.
#[no_mangle]
pub unsafe extern "C" fn execute(pairs: *const Pair, count: usize) -> &'static Answer {
    ready();
    let read = |one: &Text| -> &'static str { std::str::from_utf8_unchecked(std::slice::from_raw_parts(one.0, one.1)) };
    let pairs = std::slice::from_raw_parts(pairs, count);
    let arguments: Vec<_> = pairs.iter().map(|pair| (read(&pair.0), read(&pair.1))).collect();
    given(match done(&arguments) {
        Ok(data) => Answer(true, text(Box::leak(data.into_boxed_str())), false, text("")),
        Err(error) => Answer(false, text(""), true, text(Box::leak(error.into_boxed_str()))),
    })
}

#[export_name = "run"]
pub extern "C" fn run() -> i32 {
    0
}

/// # Safety
/// Called by the host alone, for what it passes.
#[no_mangle]
pub unsafe extern "C" fn cabi_realloc(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
    let made = match old_size {
        0 => alloc::alloc(Layout::from_size_align_unchecked(size.max(1), align)),
        _ => alloc::realloc(old, Layout::from_size_align_unchecked(old_size, align), size.max(1)),
    };
    if made.is_null() {
        std::process::abort()
    }
    made
}

extern "C" {
    fn __wasm_call_ctors();
}

/// The linker would wrap each export, cabi_realloc too, in a whole program's start and end; not when this is called.
fn ready() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| unsafe { __wasm_call_ctors() });
}
