//! The same reads by fio, a device benchmark that others trust, where it is installed.

use std::process::{Command, Stdio};

use pleach::env::ReadDriver;
use serde_json::Value;

use super::BLOCK_BYTES;
use super::files::StoreFiles;
use super::reads::{Manner, Sample};
use crate::engine::Result;

/// Length of an option of fio at most.
const NAMES_MAX: usize = 4096;

/// Whether there is a command `fio`.
pub(super) fn is_installed() -> bool {
    let version = Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// fio's reads of the same files in the same manner.
pub(super) fn sample(files: &StoreFiles, manner: Manner, direct: bool, seconds: f64) -> Result<Sample> {
    let (engine, polling) = match manner.driver {
        ReadDriver::Ring => ("io_uring", None),
        ReadDriver::DevicePolled => ("io_uring", Some("--hipri")),
        ReadDriver::KernelPolled => ("io_uring", Some("--sqthread_poll")),
        ReadDriver::Threads | ReadDriver::Blocking => ("psync", None),
    };
    let Manner { depth, threads, .. } = manner;
    let output = Command::new("fio")
        .args(["--name=device", "--rw=randread", "--readonly", "--norandommap", "--randrepeat=0"])
        .args(["--file_service_type=random", "--time_based", "--thread", "--group_reporting"])
        .args(["--invalidate=0", "--output-format=json"])
        .current_dir(files.dir())
        .arg(format!("--filename={}", names(files)))
        .arg(format!("--bs={BLOCK_BYTES}"))
        .arg(format!("--ioengine={engine}"))
        .args(polling)
        .arg(format!("--direct={}", u8::from(direct)))
        .arg(format!("--iodepth={depth}"))
        // Submits and takes as many at a time as there are, as the read queue does.
        .arg(format!("--iodepth_batch_complete_max={depth}"))
        .arg(format!("--numjobs={threads}"))
        .arg(format!("--runtime={}ms", (seconds * 1e3).ceil()))
        .output()?;
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(parse(&text).ok_or_else(|| format!("fio says what is not understood: {text}"))?)
}

/// The files as fio takes them: as many as it takes.
fn names(files: &StoreFiles) -> String {
    let mut names = String::new();
    for path in files.paths() {
        let path = path.strip_prefix(files.dir()).unwrap_or(path);
        let name = path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:");
        if names.len() + name.len() + 1 >= NAMES_MAX {
            break;
        }
        if !names.is_empty() {
            names.push(':');
        }
        names += &name;
    }
    names
}

/// The figures of fio's only job.
fn parse(text: &str) -> Option<Sample> {
    // Notes may stand before the object.
    let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    let read = &job["read"];
    let reads = read["total_ios"].as_u64()?;
    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    let busy_us = percent / 100.0 * job["job_runtime"].as_f64()? * 1e3;
    let percentile = |name: &str| read["clat_ns"]["percentile"][name].as_u64();
    Some(Sample {
        reads_per_s: read["iops"].as_f64()?,
        cpu_us_per_read: busy_us / reads.max(1) as f64,
        p50_ns: percentile("50.000000")?,
        p99_ns: percentile("99.000000")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_notes() {
        let text = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
            {"jobs": [{"job_runtime": 1000, "usr_cpu": 20.0, "sys_cpu": 30.0, "read": {"iops": 50000.5,
            "total_ios": 50000, "clat_ns": {"percentile": {"50.000000": 7, "99.000000": 9}}}}]}"#;
        let sample = parse(text).expect("it is fio's form");
        assert_eq!((sample.p50_ns, sample.p99_ns), (7, 9));
        assert!((sample.cpu_us_per_read - 10.0).abs() < 1e-9 && sample.reads_per_s > 50_000.0);
        assert!(parse("fio: no").is_none());
    }
}
