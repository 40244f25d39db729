//! Check-ins: one bit a day, and the days in a row up to today.
//!
//! `site:check-ins:{user}:{month}` is a bitmap with a bit for each day of a month: 4 bytes a user and month.
//!
//! No lock: to set a bit twice is to set it once.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;

use crate::error::Error;
use crate::site::Redis;

#[derive(Clone)]
pub(crate) struct CheckIns {
    pub(crate) redis: Redis,
}

/// A day of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) year: i64,
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: u32,
}

impl Day {
    pub(crate) fn today() -> Day {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Day::of(now.map_or(0, |since| since.as_secs() as i64))
    }

    /// The day of a time in seconds since 1970, by the algorithm of Howard Hinnant's `civil_from_days`.
    pub(crate) fn of(seconds: i64) -> Day {
        let days = seconds.div_euclid(86_400) + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // The year of this algorithm begins in March, so that a leap day is its last.
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Day {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: (day_of_year - (153 * from_march + 2) / 5 + 1) as u32,
        }
    }

    /// The last day of the month before.
    fn end_of_last_month(self) -> Day {
        let (year, month) = match self.month {
            1 => (self.year - 1, 12),
            month => (self.year, month - 1),
        };
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day = match month {
            2 => 28 + u32::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        Day { year, month, day }
    }
}

impl CheckIns {
    /// Checks in. Returns the days in a row up to this one.
    pub(crate) async fn check_in(&self, user: i64, today: Day) -> Result<u32, Error> {
        let mut redis = self.redis.clone();
        let bit = today.day as usize - 1;
        let _: bool = redis.setbit(key(user, today), bit, true).await?;
        let (mut row, mut last) = (0, today);
        loop {
            // The bits of the month up to that day: the first day is the highest, and the last one the lowest.
            let mut days = redis::cmd("BITFIELD");
            days.arg(key(user, last)).arg("GET");
            days.arg(format!("u{}", last.day)).arg(0);
            let [days]: [u32; 1] = days.query_async(&mut redis).await?;
            row += days.trailing_ones();
            if days.trailing_ones() < last.day {
                return Ok(row);
            }
            last = last.end_of_last_month();
        }
    }
}

fn key(user: i64, day: Day) -> String {
    format!("site:check-ins:{user}:{}-{:02}", day.year, day.month)
}
