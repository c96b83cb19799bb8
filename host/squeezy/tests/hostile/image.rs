//! Images of the hostile functions, whose server is compiled for the test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// The hostile function with the default settings, and without a filter of system calls.
pub const CONFINED: &str = "hostile";
pub const UNCONFINED: &str = "unconfined";

/// Not an attack: what attacks are compared with.
pub const SPIN: &str = "spin";

/// Larger than the shared partition.
const LARGE_FILE_BYTES: u64 = 96 << 20;

/// Compiles the server, which contains all attacks.
pub fn compile(program: &Path) {
    let files = fs::read_dir(source()).unwrap().map(|entry| entry.unwrap().path());
    run(Command::new("musl-gcc")
        .args(["-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror"])
        // The kernel's headers, which musl does not have.
        .args(["-idirafter", "/usr/include", "-idirafter"])
        .arg(format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-o")
        .arg(program)
        .args(files.filter(|file| file.extension().is_some_and(|extension| extension == "c"))));
}

/// The names of all its attacks, always in the same order.
pub fn names(program: &Path) -> Vec<String> {
    let list = run(Command::new(program).arg("list"));
    let mut names: Vec<_> = list.lines().map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the images of both hostile functions, which differ only in their definitions; returns the
/// names of their attacks.
pub fn make(directory: &Path) -> Vec<String> {
    let tree = directory.join("tree");
    for part in ["", "dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(tree.join(part)).unwrap();
    }
    compile(&tree.join("hostile"));
    File::create(tree.join("large")).unwrap().set_len(LARGE_FILE_BYTES).unwrap();
    let image = directory.join(CONFINED).with_extension("erofs");
    run(Command::new("mkfs.erofs").arg(&image).arg(&tree));
    let definition = fs::read_to_string(source().join("function.toml")).unwrap();
    fs::write(image.with_extension("toml"), &definition).unwrap();
    let copy = directory.join(UNCONFINED).with_extension("erofs");
    fs::hard_link(&image, &copy).unwrap();
    let unconfined = definition
        .replacen("name = \"hostile\"", "name = \"unconfined\"", 1)
        .replacen("port = ", "seccomp = \"unconfined\"\nport = ", 1);
    fs::write(copy.with_extension("toml"), unconfined).unwrap();
    names(&tree.join("hostile"))
}
