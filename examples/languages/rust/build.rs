//! Compiles the bundle's C into this program.  BUNDLE: the bundle's folder.
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Compiles files of the bundle into a library of their own.
fn compile(bundle: &Path, files: &[PathBuf], flags: &str, library: &str) {
    let mut build = cc::Build::new();
    build.include(bundle).files(files).flag("-std=c11").opt_level(2).debug(false);
    for flag in flags.split_whitespace() {
        build.flag(flag);
    }
    build.compile(library);
}

fn main() {
    println!("cargo:rerun-if-env-changed=BUNDLE");
    let bundle = PathBuf::from(env::var("BUNDLE").expect("BUNDLE: the bundle's folder"));
    let named = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
    let mut others: Vec<PathBuf> = fs::read_dir(&bundle).unwrap().map(|e| e.unwrap().path())
        .filter(|p| named(p).ends_with(".c") && !named(p).starts_with("test_")).collect();
    others.sort();
    // kernels have the flags of their CPU, which the Makefile states; other files run on any
    let makefile = fs::read_to_string(bundle.join("Makefile")).unwrap();
    for line in makefile.lines().filter_map(|l| l.strip_prefix("KERNEL_CFLAGS")) {
        let (variant, flags) = line.split_once("?=").unwrap();
        let start = format!("{}_kernels_", variant.trim());
        let (kernels, rest) = others.into_iter().partition(|p| named(p).contains(&start));
        others = rest;
        compile(&bundle, &kernels, flags, &format!("kernels{}", variant.trim()));
    }
    compile(&bundle, &others, "", "bundle");
    println!("cargo:rustc-link-lib=m");
}
