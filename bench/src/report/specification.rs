//! Generates the table of SPECIFICATION.md: every target, with its assessment by the recorded
//! lines.

use super::{
    Assessment, Verdict, number,
    target::{ShownBy, TARGETS, Target},
};
use std::fmt::Write;

/// The table is between these lines.
const BEGIN: &str = "<!-- begin of the table: made by `squeezy bench specification` -->\n";
const END: &str = "<!-- end of the table -->\n";

/// SPECIFICATION.md with the table for these assessments; `None` if it has no markers for it.
pub(crate) fn update(text: &str, assessed: &[Assessment]) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", table(assessed)))
}

fn table(assessed: &[Assessment]) -> String {
    let mut text =
        "| what | target | recorded | shown by |\n| --- | --- | --- | --- |\n".to_owned();
    for target in TARGETS.iter() {
        let Target { what, limit, unit, shown_by } = target;
        let (word, limit) = limit.in_words();
        let about: Vec<_> = assessed.iter().filter(|it| it.target == target).collect();
        let (recorded, shown_by) = match shown_by {
            ShownBy::Other(other, held_by) => {
                let held = held_by.as_ref().map(|by| format!("held by `{by}`"));
                (held.unwrap_or_default(), other.clone())
            }
            ShownBy::Experiment(name, _) => {
                let link = format!("[`squeezy bench {name}`](bench/results/{name}/README.md)");
                (recorded(&about), link)
            }
        };
        let limit = format!("{word}{limit}{}", unit.in_words());
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "| {what} | {limit} | {recorded} | {shown_by} |");
    }
    text
}

/// How often each verdict was given, and the range of values.
fn recorded(assessed: &[&Assessment]) -> String {
    let values = || assessed.iter().map(|it| it.measured.value);
    let (Some(least), Some(most)) =
        (values().min_by(f64::total_cmp), values().max_by(f64::total_cmp))
    else {
        return String::new();
    };
    let unit = assessed.first().map_or("", |it| it.target.unit.in_words());
    let values = match (number(least), number(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };
    let verdicts: Vec<_> = Verdict::ALL
        .into_iter()
        .filter_map(|verdict| match assessed.iter().filter(|it| it.verdict() == verdict).count() {
            0 => None,
            _ if assessed.len() == 1 => Some(format!("`{verdict}`")),
            count => Some(format!("`{verdict}` {count}")),
        })
        .collect();
    format!("{}: {values}{unit}", verdicts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Estimate, estimate::Certainty},
        *,
    };

    #[test]
    fn each_target_is_a_row_with_what_was_recorded() {
        let target = Target::find("plug", "plug-again").unwrap();
        let measured = |value, low, high| Assessment {
            target,
            what: String::new(),
            measured: Estimate { value, certainty: Certainty::Within(low, high) },
        };
        let assessed = [measured(2.0, 1.0, 3.0), measured(4.0, 3.0, 9.0)];
        let text = format!("Head.\n\n{BEGIN}stale\n{END}\nFoot.\n");
        let text = update(&text, &assessed).unwrap();
        assert!(text.starts_with("Head.\n") && text.ends_with("\nFoot.\n"), "{text}");
        assert!(!text.contains("stale"), "{text}");
        let row = "| at most 5 ms | `met` 1, `unclear` 1: 2.00 to 4.00 ms | [`squeezy bench plug`]";
        assert!(text.contains(row), "{text}");
        assert!(text.contains(" | held by `make test` | [`the_state_is_as_large"), "{text}");
        assert_eq!(update(&text, &assessed), Some(text));
        assert_eq!(recorded(&[&measured(9.0, 8.0, 9.5)]), "`MISSED`: 9.00 ms");
        assert_eq!(update("nothing", &assessed), None);
    }
}
