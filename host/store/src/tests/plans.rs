//! How SQLite finds what is asked for.

use super::*;

#[test]
fn every_list_is_read_by_an_index_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let connection = schema::open(&directory.path().join("x.db")).unwrap();
    for (action, since_ms, upto_ms, right) in [
        (None, None, None, "USING INDEX by_namespace "),
        (Some("f"), None, None, "USING INDEX by_action "),
        (None, Some(1), None, "USING INDEX by_namespace_and_time "),
        (None, None, Some(1), "USING INDEX by_namespace_and_time "),
        (None, Some(1), Some(2), "USING INDEX by_namespace_and_time "),
        (Some("f"), Some(1), None, "USING INDEX by_action_and_time "),
        (Some("f"), None, Some(1), "USING INDEX by_action_and_time "),
        (Some("f"), Some(1), Some(2), "USING INDEX by_action_and_time "),
    ] {
        let selection =
            Selection { action: action.map(str::to_owned), since_ms, upto_ms, ..everything() };
        let plan = |sql: String| -> String {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let parameters: Vec<i64> = vec![1; statement.parameter_count()];
            let rows = statement.query_map(params_of(&parameters), |row| row.get::<_, String>(3));
            rows.unwrap().map(|line| line.unwrap() + " ").collect()
        };
        let list = plan(selection.list_sql());
        assert!(list.contains(right) && !list.contains("TEMP B-TREE"), "{selection:?}: {list}");
        let count = plan(selection.count_sql());
        // Without the table: by a namespace its rows are sought too, but only once a column is asked for.
        let index = if selection.action.is_some() { "COVERING INDEX" } else { "USING INDEX" };
        assert!(count.contains("SEARCH") && count.contains(index), "{selection:?}: {count}");
    }
}

fn params_of(numbers: &[i64]) -> impl rusqlite::Params + '_ {
    rusqlite::params_from_iter(numbers)
}
