//! Selects the lines for a row of a table, a verdict or a point of a plot.

use crate::record::{Measured, OfFunction};

/// The lines of a method.
pub(crate) fn of_method<'a, F>(
    records: &'a [Measured<F>],
    method: &'a str,
) -> impl DoubleEndedIterator<Item = &'a Measured<F>> + Clone {
    records.iter().filter(move |record| record.header.method == method)
}

/// The lines of a method and a function.
pub(crate) fn of_function<'a, F: OfFunction>(
    records: &'a [Measured<F>],
    method: &'a str,
    function: &'a str,
) -> impl Iterator<Item = &'a Measured<F>> + Clone {
    of_method(records, method).filter(move |record| record.function() == function)
}

/// The methods of the lines, in order of appearance.
pub(crate) fn methods<F>(records: &[Measured<F>]) -> Vec<String> {
    in_order(records, |record| record.header.method.clone())
}

/// A sort key that orders lines by their methods' order of appearance.
pub(crate) fn by_method<F>(records: &[Measured<F>]) -> impl Fn(&Measured<F>) -> usize + 'static {
    let methods = methods(records);
    move |record| {
        let place = methods.iter().position(|method| *method == record.header.method);
        place.unwrap_or(methods.len())
    }
}

/// The functions of the lines.
pub(crate) fn functions<F: OfFunction>(records: &[Measured<F>]) -> Vec<String> {
    sorted(records, |record| record.function().to_owned())
}

/// The distinct values of something, in order of appearance.
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

/// The distinct values of something, in ascending order.
pub(crate) fn sorted<R, T: Ord>(records: &[R], value: impl Fn(&R) -> T) -> Vec<T> {
    let mut values: Vec<T> = records.iter().map(value).collect();
    values.sort();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::header;

    struct Figures(String);

    impl OfFunction for Figures {
        fn function(&self) -> &str {
            &self.0
        }
    }

    #[test]
    fn each_thing_is_named_once_and_found() {
        let lines = [("squeezy", "html", 0), ("balloon", "html", 0), ("squeezy", "bfs", 1)];
        let lines = lines.map(|(method, function, trial)| Measured {
            header: header("reclaim", method, trial),
            figures: Figures(function.to_owned()),
        });
        assert_eq!(methods(&lines), ["squeezy", "balloon"]);
        assert_eq!(lines.each_ref().map(by_method(&lines)), [0, 1, 0]);
        assert_eq!(functions(&lines), ["bfs", "html"]);
        let trials =
            |lines: Vec<&Measured<_>>| lines.iter().map(|l| l.header.trial).collect::<Vec<_>>();
        assert_eq!(trials(of_method(&lines, "squeezy").collect()), [0, 1]);
        assert_eq!(trials(of_function(&lines, "squeezy", "bfs").collect()), [1]);
        assert!(of_function(&lines, "balloon", "bfs").next().is_none());
    }
}
