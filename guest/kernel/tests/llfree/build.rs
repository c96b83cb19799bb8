//! Compiles the guest's allocator for a program: the files that the kernel is made of, unchanged.

fn main() {
    let kernel = "../../src/mm/llfree";
    println!("cargo::rerun-if-changed={kernel}");
    println!("cargo::rerun-if-changed=src/guest.c");
    println!("cargo::rerun-if-changed=src/platform.h");
    cc::Build::new()
        .file("src/guest.c")
        .files(
            ["llfree", "put", "compact", "area", "state", "blocks", "doom"]
                .map(|name| format!("{kernel}/{name}.c")),
        )
        // Its platform.h comes before the kernel's.
        .include("src")
        .include(kernel)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-sign-compare")
        // As the kernel is.
        .flag("-fno-strict-aliasing")
        .warnings_into_errors(true)
        .compile("llfree");
}
