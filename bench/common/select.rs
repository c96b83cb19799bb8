//! Which lines a row of a table, a bound or a point of a plot is made of.

use super::record::Record;

/// The lines about a method.
pub(crate) fn of_method<'a, R: Record>(
    records: &'a [R],
    method: &'a str,
) -> impl DoubleEndedIterator<Item = &'a R> + Clone {
    records.iter().filter(move |record| record.header().method == method)
}

/// The lines about a method and a function.
pub(crate) fn of_function<'a, R: Record>(
    records: &'a [R],
    method: &'a str,
    function: &'a str,
) -> impl Iterator<Item = &'a R> + Clone {
    of_method(records, method).filter(move |record| record.function() == function)
}

/// The methods that lines are about, in the order in which they come.
pub(crate) fn methods(records: &[impl Record]) -> Vec<String> {
    in_order(records, |record| record.header().method.clone())
}

/// The functions that lines are about.
pub(crate) fn functions(records: &[impl Record]) -> Vec<String> {
    sorted(records, |record| record.function().to_owned())
}

/// What lines say of something, each once, in the order in which it comes.
pub(crate) fn in_order<'a, R, T: PartialEq>(
    records: &'a [R],
    value: impl Fn(&'a R) -> T,
) -> Vec<T> {
    let mut values = Vec::new();
    for value in records.iter().map(value) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// The same from the least on.
pub(crate) fn sorted<R, T: Ord>(records: &[R], value: impl Fn(&R) -> T) -> Vec<T> {
    let mut values: Vec<T> = records.iter().map(value).collect();
    values.sort();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::{super::record::Header, *};
    use crate::common::record::tests::header;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Line(Header, String);

    impl Record for Line {
        fn header(&self) -> &Header {
            &self.0
        }

        fn function(&self) -> &str {
            &self.1
        }
    }

    #[test]
    fn each_thing_is_named_once_and_found() {
        let lines = [("squeezy", "html", 0), ("balloon", "html", 0), ("squeezy", "bfs", 1)];
        let lines = lines.map(|(method, function, trial)| {
            Line(header("reclaim", method, trial), function.to_owned())
        });
        assert_eq!(methods(&lines), ["squeezy", "balloon"]);
        assert_eq!(functions(&lines), ["bfs", "html"]);
        let trials = |lines: Vec<&Line>| lines.iter().map(|l| l.0.trial).collect::<Vec<_>>();
        assert_eq!(trials(of_method(&lines, "squeezy").collect()), [0, 1]);
        assert_eq!(trials(of_function(&lines, "squeezy", "bfs").collect()), [1]);
        assert!(of_function(&lines, "balloon", "bfs").next().is_none());
    }
}
