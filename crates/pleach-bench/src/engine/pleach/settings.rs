//! Settings of Pleach by name, as `--tune` gives them: options of the store, options of its reads, and a simulated device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pleach::env::{RealEnv, SlowEnv};
use pleach::{Conversion, LearnedIndex, Options, ReadOptions, ReadPolicy, Shape, Thresholds};

use crate::engine::{EngineConfig, Result};

/// Most compaction threads that Pleach takes.
const COMPACTION_THREADS_MAX: usize = 64;

/// Simulated devices: name, time of a read, reads at a time. The figures are those of `TridentKV`'s SATA SSD (Samsung PM883:
/// 98,000 reads a second at depth 32) and disk (Seagate Exos 7E2: 8.5 ms of seek, 4.2 ms for half a turn), from their data
/// sheets.
const DEVICES: [(&str, Duration, usize); 2] =
    [("sata", Duration::from_micros(110), 11), ("hdd", Duration::from_micros(12_700), 1)];

/// What a configuration asks for.
pub(super) struct Chosen {
    pub(super) options: Options,
    pub(super) reads: ReadOptions,
    /// Whether scans say how many entries they will take.
    pub(super) expects_entries: bool,
    pub(super) device: Option<SimulatedDevice>,
}

/// A device that delays reads.
pub(super) struct SimulatedDevice {
    env: Arc<SlowEnv>,
    latency: Duration,
}

impl SimulatedDevice {
    fn named(name: &str) -> Result<Self> {
        let device = DEVICES.into_iter().find(|(device, ..)| *device == name);
        let (_, latency, width) =
            device.ok_or_else(|| format!("there is no simulated device {name:?}: choose sata or hdd"))?;
        Ok(Self { env: Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), width)), latency })
    }

    /// Delays reads from now on. The open of a store comes before.
    pub(super) fn begin(&self) {
        self.env.set_latency(self.latency);
    }
}

/// The options of `config`.
pub(super) fn chosen(mut config: EngineConfig, shape: Shape) -> Result<Chosen> {
    let mut options = Options::new()
        .memory(usize::try_from(config.memory_bytes)?)
        .direct_reads(config.direct_reads)
        .compression(config.compression)
        .shape(shape)
        .compaction_threads(compaction_threads(&config));
    if let Some(bytes) = config.take_tuning("memtable_bytes")? {
        options = options.memtable_bytes(bytes);
    }
    if let Some(runs) = config.take_tuning("runs_per_stage")? {
        options = options.runs_per_stage(runs);
    }
    if let Some(bytes) = config.take_tuning("sst_bytes")? {
        options = options.sst_bytes(bytes);
    }
    if let Some(ssts) = config.take_tuning("clean_every")? {
        options = options.clean_every(ssts);
    }
    if let Some(bits) = config.take_tuning("filter_bits_per_key")? {
        options = options.filter_bits_per_key(bits);
    }
    if let Some(bytes) = config.take_tuning("separate_at")? {
        options = options.separate_at(bytes);
    }
    if let Some(target) = config.take_tuning("space_target")? {
        options = options.space_target(target);
    }
    if let Some(name) = config.take_tuning::<String>("conversion")? {
        options = options.conversion(conversion(&name)?);
    }
    if let Some(driver) = config.take_tuning("read_driver")? {
        options = options.read_driver(driver);
    }
    if let Some(text) = config.take_tuning::<String>("learned_index")? {
        options = learned_index(options, &text)?;
    }
    let reads = read_options(&mut config)?;
    let expects_entries = config.take_tuning("expect_entries")?.unwrap_or(false);
    let device = config.take_tuning::<String>("simulated_device")?;
    let device = device.map(|name| SimulatedDevice::named(&name)).transpose()?;
    if let Some(device) = &device {
        options = options.env(Arc::<SlowEnv>::clone(&device.env));
    }
    config.no_tuning_left()?;
    Ok(Chosen { options, reads, expects_entries, device })
}

fn read_options(config: &mut EngineConfig) -> Result<ReadOptions> {
    let mut reads = ReadOptions::new();
    if let Some(text) = config.take_tuning::<String>("read_policy")? {
        reads = reads.policy(policy(&text)?);
    }
    if let Some(fill_cache) = config.take_tuning("fill_cache")? {
        reads = reads.fill_cache(fill_cache);
    }
    Ok(reads)
}

fn learned_index(options: Options, text: &str) -> Result<Options> {
    match text {
        "never" => Ok(options.learned_index(LearnedIndex::Never)),
        "always" => Ok(options.learned_index(LearnedIndex::Always)),
        "adaptive" => Ok(options.learned_index(LearnedIndex::Adaptive)),
        "reading" => {
            let thresholds = Thresholds { training_writers: 0, ..Thresholds::default() };
            Ok(options.learned_index(LearnedIndex::Adaptive).thresholds(thresholds))
        }
        _ => {
            let error =
                format!("{text:?} is no value of learned_index: choose never, always, adaptive or reading");
            Err(error.into())
        }
    }
}

fn conversion(text: &str) -> Result<Conversion> {
    match text {
        "never" => Ok(Conversion::Never),
        "scans" => Ok(Conversion::ForScans),
        "always" => Ok(Conversion::Always),
        _ => Err(format!("{text:?} is no value of conversion: choose never, scans or always").into()),
    }
}

fn policy(text: &str) -> Result<ReadPolicy> {
    let count = text.strip_prefix("fc").and_then(|searches| searches.parse().ok());
    match (text, count) {
        ("auto", _) => Ok(ReadPolicy::Auto),
        ("serial", _) => Ok(ReadPolicy::Serial),
        ("pa", _) => Ok(ReadPolicy::PriorityAware),
        (_, Some(searches)) => Ok(ReadPolicy::FixedCount(searches)),
        _ => Err(format!("{text:?} is no policy of reads: choose auto, serial, fc<searches> or pa").into()),
    }
}

fn compaction_threads(config: &EngineConfig) -> usize {
    config.background_threads.clamp(1, COMPACTION_THREADS_MAX)
}

/// What was chosen, for the record.
pub(super) fn for_record(config: &EngineConfig, shape: Shape) -> BTreeMap<String, String> {
    let mut settings = config.tuning.clone();
    settings.insert("shape".to_owned(), format!("{shape:?}"));
    settings.insert("compaction_threads".to_owned(), compaction_threads(config).to_string());
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_devices_have_names() {
        let policies = ["auto", "serial", "fc16", "pa"].map(|text| policy(text).expect("it is one"));
        let expected =
            [ReadPolicy::Auto, ReadPolicy::Serial, ReadPolicy::FixedCount(16), ReadPolicy::PriorityAware];
        assert_eq!(policies, expected);
        for text in ["", "fc", "fc-1", "PA"] {
            assert!(policy(text).is_err(), "{text}");
        }
        assert!(SimulatedDevice::named("hdd").is_ok() && SimulatedDevice::named("tape").is_err());
    }
}
