//! Classifies digit images: `classify digits_weights.bin images.f32`, one digit per line.
#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod digits;

use digits::*;
use std::ffi::{CStr, CString};
use std::{alloc, env, fs, mem, process, ptr};

/// An opened model: its weights, its arena for up to so many images, a context over both.
struct Model {
    weights: Box<digits_weights>, // the context points to it
    context: Box<digits_context>,
    arena: *mut u8,
    layout: alloc::Layout,
}

fn check(status: aotc_status, what: &str) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(digits_strerror(status as _)) };
    Err(format!("{what}: {}", text.to_string_lossy()))
}

impl Model {
    fn open(path: &str, batch: i64) -> Result<Model, String> {
        unsafe {
            let bytes = digits_arena_size(batch, 1).max(64) as usize;
            let layout = alloc::Layout::from_size_align(bytes, 64).map_err(|e| e.to_string())?;
            let mut m = Model { weights: Box::new(mem::zeroed()), context: Box::new(mem::zeroed()),
                                arena: alloc::alloc(layout), layout };
            let name = CString::new(path).map_err(|e| e.to_string())?;
            check(digits_weights_open(&mut *m.weights, name.as_ptr()), path)?;
            check(digits_init(&mut *m.context, &*m.weights, m.arena.cast(), bytes as _,
                              ptr::null()), "init")?;
            Ok(m)
        }
    }

    /// The digits of images of 64 pixels each, which lie one behind the other.
    fn run(&mut self, images: &[f32]) -> Result<Vec<i64>, String> {
        let batch = images.len() / 64;
        let (mut logits, mut digits) = (vec![0f32; batch * 10], vec![0i64; batch]);
        let status = unsafe {
            digits_run(&mut *self.context, batch as i64, images.as_ptr(), logits.as_mut_ptr(),
                       digits.as_mut_ptr())
        };
        check(status, "run").map(|()| digits)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe {
            digits_weights_close(&mut *self.weights);
            alloc::dealloc(self.arena, self.layout);
        }
    }
}

fn classify(weights: &str, images: &str) -> Result<(), String> {
    let data = fs::read(images).map_err(|e| format!("{images}: {e}"))?;
    let pixels: Vec<f32> = data.chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut model = Model::open(weights, (pixels.len() / 64) as i64)?;
    for digit in model.run(&pixels)? {
        println!("{digit}");
    }
    Ok(())
}

fn main() {
    let args: Vec<String> = env::args().collect();
    if args.len() != 3 {
        eprintln!("usage: {} digits_weights.bin images.f32", args[0]);
        process::exit(2);
    }
    if let Err(fault) = classify(&args[1], &args[2]) {
        eprintln!("{fault}");
        process::exit(1);
    }
}
