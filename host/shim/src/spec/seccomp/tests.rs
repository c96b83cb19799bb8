use super::*;
use serde_json::{Value, json};

fn compiled(profile: Value) -> Result<Vec<SystemCallFilter>> {
    filters(&serde_json::from_value(profile).unwrap())
}

/// What the kernel answers: the strictest answer of all programs.
fn answer(filters: &[SystemCallFilter], call: i64, arguments: [u64; 6]) -> SeccompAction {
    let answers = filters.iter().map(|filter| run(filter, call, arguments));
    // The strictest is the smallest as a signed number.
    let strictest = answers.min_by_key(|answer| (*answer & 0xffff_0000) as i32).unwrap_or(ALLOW);
    match strictest & 0xffff_0000 {
        0x8000_0000 => SeccompAction::KillProcess,
        0x0000_0000 => SeccompAction::KillThread,
        0x0003_0000 => SeccompAction::Trap,
        0x0005_0000 => SeccompAction::Errno(strictest & 0xffff),
        0x7ffc_0000 => SeccompAction::Log,
        ALLOW => SeccompAction::Allow,
        other => panic!("{other:#x}"),
    }
}

const ALLOW: u32 = 0x7fff_0000;

/// Executes a program as the kernel does, as far as seccompiler makes use of it.
fn run(filter: &SystemCallFilter, call: i64, arguments: [u64; 6]) -> u32 {
    const X86_64: u32 = 0xc000_003e;
    let mut data = vec![call as u32, X86_64, 0, 0];
    data.extend(arguments.iter().flat_map(|argument| [*argument as u32, (argument >> 32) as u32]));
    let program: Vec<Instruction> = filter.instructions().collect();
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let instruction = program[at];
        let operand = instruction.operand;
        let is_true = match instruction.code {
            0x20 => {
                accumulator = data[operand as usize / 4];
                at += 1;
                continue;
            }
            0x54 => {
                accumulator &= operand;
                at += 1;
                continue;
            }
            0x05 => {
                at += 1 + operand as usize;
                continue;
            }
            0x06 => return operand,
            0x15 => accumulator == operand,
            0x25 => accumulator > operand,
            0x35 => accumulator >= operand,
            code => panic!("{code:#x}"),
        };
        let jump = if is_true { instruction.jump_true } else { instruction.jump_false };
        at += 1 + usize::from(jump);
    }
}

const NONE: [u64; 6] = [0; 6];

/// The form of containerd's own.
#[test]
fn a_list_of_what_is_allowed_allows_nothing_else() {
    let filters = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {"names": ["read", "fchown32", "clone"], "action": "SCMP_ACT_ALLOW"},
            {
                "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]
            },
            {
                "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": 4_294_967_295_u64, "op": "SCMP_CMP_EQ"}]
            },
            {
                "names": ["socket"], "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]
            },
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}
        ]
    }))
    .unwrap();
    let with = |first: u64| [first, 0, 0, 0, 0, 0];
    for (call, arguments, expected) in [
        (libc::SYS_read, NONE, SeccompAction::Allow),
        (libc::SYS_write, NONE, SeccompAction::Errno(1)),
        (libc::SYS_personality, with(8), SeccompAction::Allow),
        (libc::SYS_personality, with(0xffff_ffff), SeccompAction::Allow),
        (libc::SYS_personality, with(8 | 1 << 32), SeccompAction::Errno(1)),
        (libc::SYS_personality, with(9), SeccompAction::Errno(1)),
        (libc::SYS_socket, with(2), SeccompAction::Allow),
        (libc::SYS_socket, with(40), SeccompAction::Errno(1)),
        (libc::SYS_clone3, NONE, SeccompAction::Errno(38)),
        (5000, NONE, SeccompAction::Errno(1)),
    ] {
        assert_eq!(answer(&filters, call, arguments), expected, "{call} {arguments:?}");
    }
}

#[test]
fn a_list_of_what_is_forbidden_allows_all_else() {
    let filters = compiled(json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["reboot"], "action": "SCMP_ACT_KILL_PROCESS"},
            {"names": ["sync"], "action": "SCMP_ACT_LOG"},
            {
                "names": ["lseek"], "action": "SCMP_ACT_TRAP",
                "args": [
                    {"index": 1, "value": 0xf0, "valueTwo": 0x10, "op": "SCMP_CMP_MASKED_EQ"},
                    {"index": 2, "value": 1, "op": "SCMP_CMP_GT"}
                ]
            }
        ]
    }))
    .unwrap();
    for (call, arguments, expected) in [
        (libc::SYS_read, NONE, SeccompAction::Allow),
        (libc::SYS_mkdirat, NONE, SeccompAction::Errno(1)),
        (libc::SYS_reboot, NONE, SeccompAction::KillProcess),
        (libc::SYS_sync, NONE, SeccompAction::Log),
        (libc::SYS_lseek, [0, 0x1f, 2, 0, 0, 0], SeccompAction::Trap),
        (libc::SYS_lseek, [0, 0x1f, 1, 0, 0, 0], SeccompAction::Allow),
        (libc::SYS_lseek, [0, 0x20, 2, 0, 0, 0], SeccompAction::Allow),
    ] {
        assert_eq!(answer(&filters, call, arguments), expected, "{call} {arguments:?}");
    }
}

#[test]
fn what_is_stricter_by_default_than_in_a_rule_is_as_the_rule_says() {
    let filters = compiled(json!({
        "defaultAction": "SCMP_ACT_KILL",
        "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 9}
        ]
    }))
    .unwrap();
    assert_eq!(answer(&filters, libc::SYS_read, NONE), SeccompAction::Allow);
    assert_eq!(answer(&filters, libc::SYS_write, NONE), SeccompAction::Errno(9));
    assert_eq!(answer(&filters, libc::SYS_open, NONE), SeccompAction::KillThread);
}

#[test]
fn conditions_on_one_argument_are_alternatives() {
    let condition = |value: u64| json!({"index": 0, "value": value, "op": "SCMP_CMP_EQ"});
    let filters = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{
            "names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [condition(1), condition(2)]
        }]
    }))
    .unwrap();
    for (family, expected) in
        [(1, SeccompAction::Allow), (2, SeccompAction::Allow), (3, SeccompAction::Errno(1))]
    {
        assert_eq!(answer(&filters, libc::SYS_socket, [family, 0, 0, 0, 0, 0]), expected);
    }
}

#[test]
fn what_cannot_be_a_program_is_refused() {
    let rule = |rule: Value| json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]});
    let with = |argument: Value| {
        rule(json!({"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [argument]}))
    };
    let many: Vec<Value> = (1..=9)
        .map(|errno| json!({"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno}))
        .collect();
    for (profile, says) in [
        (json!({}), "\"\" in a seccomp profile"),
        (rule(json!({"names": ["read"], "action": "SCMP_ACT_NOTIFY"})), "SCMP_ACT_NOTIFY"),
        (rule(json!({"action": "SCMP_ACT_ERRNO", "errnoRet": 4096})), "4096 is no error"),
        (rule(json!({"action": "SCMP_ACT_ERRNO", "errnoRet": 0})), "0 is no error"),
        (with(json!({"op": "SCMP_CMP_ODD"})), "SCMP_CMP_ODD"),
        (
            rule(json!({
                "names": vec!["read"; 200],
                "action": "SCMP_ACT_ERRNO",
                "args": vec![json!({"index": 0, "op": "SCMP_CMP_EQ"}); 100],
            })),
            "so many conditions",
        ),
        (with(json!({"index": 6, "op": "SCMP_CMP_EQ"})), "the seccomp profile: "),
        (
            rule(json!({"names": vec!["read"; 16385], "action": "SCMP_ACT_ERRNO"})),
            "more than 16384 calls",
        ),
        (json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": many}), "so many different actions"),
    ] {
        let error = compiled(profile).expect_err(says);
        assert!(error.message.contains(says) && !error.message.contains('\n'), "{error}");
    }
}
