//! The table and its meaning.

use std::fmt::Write;
use std::time::Duration;

use crate::args::Plan;
use crate::database::Totals;
use crate::storm::Answers;

/// The results of one sale: the database's totals, and the answers that the customers got.
#[derive(Debug)]
pub(crate) struct Figures {
    stock: u64,
    totals: Totals,
    answers: Answers,
}

impl Figures {
    pub(crate) fn new(stock: u32, totals: Totals, answers: Answers) -> Figures {
        Figures {
            stock: stock.into(),
            totals,
            answers,
        }
    }

    fn oversold(&self) -> u64 {
        self.totals.orders.saturating_sub(self.stock)
    }

    /// Returns the number of orders beyond each user's first.
    fn double_orders(&self) -> u64 {
        self.totals.orders - self.totals.buyers
    }

    fn is_wrong(&self) -> bool {
        self.oversold() > 0 || self.double_orders() > 0
    }

    fn wrongs(&self) -> String {
        format!(
            "{} were sold that do not exist, and {} orders went to users who had one",
            self.oversold(),
            self.double_orders(),
        )
    }
}

/// Returns a table of both sales, side by side.
pub(crate) fn table(unlocked: &Figures, locked: &Figures) -> String {
    let mut text = format!("{:<18}{:>16}{:>16}\n", "", "without lock", "with lock");
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        let _ = writeln!(text, "{name:<18}{:>16}{:>16}", cell(unlocked), cell(locked));
    };
    row("requests", &|of| of.answers.waits.len().to_string());
    row("sold", &|of| of.totals.orders.to_string());
    row("oversold", &|of| of.oversold().to_string());
    row("double orders", &|of| of.double_orders().to_string());
    row("refused: has one", &|of| {
        of.answers.already_ordered.to_string()
    });
    row("refused: sold out", &|of| of.answers.sold_out.to_string());
    row("failed", &|of| of.answers.failed.to_string());
    row("requests/s", &|of| {
        format!("{:.0}", of.answers.requests_per_second())
    });
    row("wait p50", &|of| millis(of.answers.wait_percentile(50)));
    row("wait p99", &|of| millis(of.answers.wait_percentile(99)));
    text
}

fn millis(wait: Duration) -> String {
    format!("{:.1} ms", wait.as_secs_f64() * 1e3)
}

/// Returns the conclusion in sentences, and whether the lock kept its promise.
pub(crate) fn verdict(plan: &Plan, unlocked: &Figures, locked: &Figures) -> (String, bool) {
    let mut text = String::new();
    if let Some(failure) = &unlocked.answers.failure {
        let failed = unlocked.answers.failed;
        let _ = writeln!(
            text,
            "Without the lock, {failed} requests failed: {failure}"
        );
    }
    let _ = if unlocked.is_wrong() {
        writeln!(text, "Without the lock, {}.", unlocked.wrongs())
    } else {
        writeln!(
            text,
            "Without the lock nothing went wrong this time: luck, or too little rush. Try more --users or --clicks."
        )
    };
    let sold = locked.totals.orders;
    let expected = locked.stock.min(plan.size.users.into());
    let problem = if locked.is_wrong() {
        Some(format!("BROKEN: with the lock, {}.", locked.wrongs()))
    } else if let Some(failure) = &locked.answers.failure {
        Some(format!(
            "INCOMPLETE: with the lock, {} requests failed: {failure}",
            locked.answers.failed,
        ))
    } else if sold != expected || sold != locked.answers.sold {
        Some(format!(
            "INCOMPLETE: with the lock, {sold} were sold of {expected}, and {} users were told so.",
            locked.answers.sold,
        ))
    } else {
        None
    };
    let kept = problem.is_none();
    text += &problem.unwrap_or_else(|| {
        format!(
            "With the lock, {sold} of {} were sold, to {sold} users.\n{}",
            locked.stock,
            price(unlocked, locked),
        )
    });
    (text, kept)
}

fn price(unlocked: &Figures, locked: &Figures) -> String {
    format!(
        "Its price: {:.0} requests/s instead of {:.0}, because requests for one coupon take turns.",
        locked.answers.requests_per_second(),
        unlocked.answers.requests_per_second(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut size = Plan::default().size;
        size.users = 9;
        Plan {
            stock: 2,
            size,
            processes: 1,
        }
    }

    fn figures(orders: u64, buyers: u64, told: u64, failure: Option<&str>) -> Figures {
        let answers = Answers {
            sold: told,
            failed: failure.iter().len() as u64,
            failure: failure.map(str::to_owned),
            ..Answers::default()
        };
        Figures::new(2, Totals { orders, buyers }, answers)
    }

    #[test]
    fn selling_the_whole_stock_once_keeps_the_locks_promise() {
        let (text, kept) = verdict(&plan(), &figures(5, 4, 5, None), &figures(2, 2, 2, None));
        assert!(kept, "{text}");
        assert!(!text.contains("luck"), "{text}");
        assert!(text.contains("\nIts price: "), "{text}");
    }

    #[test]
    fn a_sale_without_the_lock_that_goes_well_is_called_luck() {
        let (text, kept) = verdict(&plan(), &figures(2, 2, 2, None), &figures(2, 2, 2, None));
        assert!(kept && text.contains("luck"), "{text}");
    }

    #[test]
    fn every_fault_with_the_lock_breaks_the_promise() {
        for (locked, word) in [
            (figures(3, 3, 3, None), "BROKEN"),
            (figures(2, 1, 2, None), "BROKEN"),
            (figures(2, 2, 2, Some("no answer")), "no answer"),
            (figures(1, 1, 1, None), "INCOMPLETE"),
            (figures(2, 2, 1, None), "INCOMPLETE"),
        ] {
            let (text, kept) = verdict(&plan(), &figures(5, 4, 5, None), &locked);
            assert!(!kept && text.contains(word), "{text}");
        }
    }
}
