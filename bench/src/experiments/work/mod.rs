//! What a program that computes notices while its VM is resized (Figure 6 and Table 2 of the HyperAlloc paper).
//! See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::Measured,
    report::{Assessments, Chart, Table},
    rigs::resized_vm::{Figures, Resizing, Wording, assess, chart, table},
};

/// Work done in fixed quanta of time in a VM that is resized meanwhile, by method.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    resizing: Resizing,
}

const WORDING: Wording = Wording {
    what: "work",
    rate: "alone units/ms",
    scale: 1000.0,
    samples: "quanta",
    title: "Work of a program in fixed quanta of time while its VM is resized",
};

impl Experiment for Arguments {
    const NAME: &'static str = "work";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        self.resizing.measure(session, "ftq").await
    }
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Measured<Figures>]) -> Table {
        table(records, &WORDING)
    }

    fn assess(records: &[Measured<Figures>], assessments: &mut Assessments) {
        assess(records, assessments, &WORDING);
    }

    fn plot(records: &[Measured<Figures>]) -> Chart {
        chart(records, &WORDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::assess,
        record::tests::{header, repeated},
        report::Verdict,
    };

    #[test]
    fn what_is_left_is_judged_by_hyperalloc_alone() {
        let line = |method, percent| Measured {
            header: header(Arguments::NAME, method, 0),
            figures: Figures::example(percent, method != "baseline"),
        };
        let records =
            repeated(&[line("hyperalloc", 99.0), line("balloon", 60.0), line("baseline", 101.0)]);
        let assessed = assess::<Arguments>(&records);
        assert_eq!(assessed.iter().map(|one| one.verdict()).collect::<Vec<_>>(), [Verdict::Met; 2]);
        let table = Arguments::table(&records).to_string();
        assert!(table.contains("99.0") && table.contains("60.0"), "{table}");
        assert!(Arguments::plot(&records).svg().unwrap().contains("balloon"));
        assert!(assess::<Arguments>(&records[1..2]).is_empty());
    }
}
