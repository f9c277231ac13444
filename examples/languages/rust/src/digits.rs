//! Declarations of digits.h that this program calls, as bindgen writes them:
//! `bindgen BUNDLE/digits.h --allowlist-function 'digits_.*' -o src/digits.rs` has them all.
#![allow(non_camel_case_types)]
use std::os::raw::{c_char, c_int, c_void};

pub type aotc_status = u32;

#[repr(C)]
pub struct aotc_pool {
    pub workers: c_int,
    pub parallel_for: Option<unsafe extern "C" fn(
        *mut c_void,
        Option<unsafe extern "C" fn(*mut c_void, i64, i64, c_int)>,
        *mut c_void,
        i64,
    ) -> aotc_status>,
    pub self_: *mut c_void,
}

#[repr(C)]
pub struct digits_weights {
    pub payload: *const u8,
    pub payload_bytes: usize,
    pub memory: *mut c_void,
    pub memory_bytes: usize,
}

#[repr(C)]
pub struct digits_context {
    pub weights: *const u8,
    pub arena: *mut u8,
    pub arena_bytes: usize,
    pub pool: aotc_pool,
    pub variant: i32,
    pub detail: *const c_char,
    pub text: [c_char; 256],
}

extern "C" {
    pub fn digits_weights_open(w: *mut digits_weights, path: *const c_char) -> aotc_status;
    pub fn digits_weights_close(w: *mut digits_weights);
    pub fn digits_arena_size(batch: i64, workers: c_int) -> usize;
    pub fn digits_init(ctx: *mut digits_context, w: *const digits_weights, arena: *mut c_void,
        arena_bytes: usize, pool: *const aotc_pool) -> aotc_status;
    pub fn digits_run(ctx: *mut digits_context, batch: i64, images: *const f32,
        logits: *mut f32, digit: *mut i64) -> aotc_status;
    pub fn digits_strerror(status: aotc_status) -> *const c_char;
    pub fn digits_detail(ctx: *const digits_context) -> *const c_char;
}
