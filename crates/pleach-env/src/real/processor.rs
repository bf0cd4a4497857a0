//! Time of the machine's processors, as Linux tells it. Of a process in a container it is that of the whole machine too.

use std::time::Duration;

use crate::processor::ProcessorTime;

/// Milliseconds of a tick of `/proc/stat`: always a hundredth of a second for user space.
const TICK_MS: u64 = 10;
/// Columns of `/proc/stat` behind the label: idle, and waiting for devices.
const IDLE: [usize; 2] = [3, 4];
/// The columns behind these are parts of the first two.
const COLUMNS: usize = 8;

/// The time since the start of the machine; `None` if the system does not tell.
pub(super) fn processor_time() -> Option<ProcessorTime> {
    std::fs::read_to_string("/proc/stat").ok().and_then(|text| parse(&text))
}

/// The time in the text of `/proc/stat`.
fn parse(text: &str) -> Option<ProcessorTime> {
    let columns = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut time = ProcessorTime::default();
    let mut count = 0;
    for (no, ticks) in columns.take(COLUMNS).enumerate() {
        let column = Duration::from_millis(ticks.parse::<u64>().ok()?.checked_mul(TICK_MS)?);
        time.total = time.total.checked_add(column)?;
        if !IDLE.contains(&no) {
            time.busy = time.busy.checked_add(column)?;
        }
        count = no + 1;
    }
    (count > IDLE[1]).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  100 20 30 1000 50 1 2 3 40 50\ncpu0 50 10 15 500 25 1 1 1 20 25\n";
        let seconds = |ticks: u64| Duration::from_millis(10 * ticks);
        assert_eq!(parse(text), Some(ProcessorTime { busy: seconds(156), total: seconds(1206) }));
    }

    #[test]
    fn other_texts_tell_nothing() {
        for text in
            ["", "cpu", "cpu  1 2 3", "cpu  1 2 x 4 5", "intr 1 2 3 4", "cpu  1 2 3 99999999999999999999 5"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
