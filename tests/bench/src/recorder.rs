//! `recorder`: what recording requests costs. One program is loaded with and without its recorder in turn, so that
//! neither the place of its code in memory nor a slow minute of the machine is taken for a difference.

use std::time::Duration;

use anyhow::bail;

use crate::compare::{Loaded, SCRIPTS, Scene, chosen};
use crate::site::{Build, ModelScript, Program, Site};
use crate::table::median;

#[derive(clap::Args)]
pub(crate) struct RecorderOptions {
    /// The build of the program as NAME=PATH
    #[arg(long, default_value = "dist=target/dist/cofferdam")]
    program: Build,
    /// How often the program is loaded with each scene, each time with its recorder and without
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    rounds: u32,
    /// How long each burst lasts
    #[arg(long, default_value_t = 0.5)]
    secs: f64,
    /// Only these scenes of `compare`
    #[arg(long = "scene", value_name = "SCENE", default_values = ["whole-16", "embedding-json", "stream"])]
    scenes: Vec<String>,
}

/// A burst of this share of the measured one comes before that: after a reload there are no connections to providers.
const WARM_UP: f64 = 0.4;

/// A program that is told to record, or not to.
struct Switched {
    program: Program,
    server: Loaded,
    with: String,
    without: String,
}

impl Switched {
    async fn start(build: &Build, site: &Site) -> anyhow::Result<Self> {
        let scripts = SCRIPTS.map(ModelScript::new);
        let (with, without) = (site.config("", &scripts), site.config("[server]\nrecorder = 0\n", &scripts));
        let program = Program::start(build, site, &with).await?;
        Ok(Self { server: Loaded::from(&program), program, with, without })
    }

    /// The cost of a request with the recorder and without. The caller changes the order from round to round, so that
    /// a steady drift of the machine falls on both alike.
    async fn round(&self, scene: &Scene, recorded_first: bool, secs: f64) -> anyhow::Result<[f64; 2]> {
        let first = self.burst(scene, recorded_first, secs).await?;
        let second = self.burst(scene, !recorded_first, secs).await?;
        Ok(if recorded_first { [first, second] } else { [second, first] })
    }

    /// Microseconds of processor time for a request.
    async fn burst(&self, scene: &Scene, records: bool, secs: f64) -> anyhow::Result<f64> {
        self.program.reload_and_wait(if records { &self.with } else { &self.without }).await?;
        self.server.burst(scene, Duration::from_secs_f64(secs * WARM_UP)).await?;
        Ok(self.server.burst(scene, Duration::from_secs_f64(secs)).await?.cpu() / 1e3)
    }
}

pub(crate) async fn run(options: &RecorderOptions) -> anyhow::Result<()> {
    let scenes = chosen(&options.scenes, &[])?;
    if !(0.05..=60.0).contains(&options.secs) {
        bail!("--secs: {} is not between 0.05 and 60", options.secs);
    }
    let site = Site::start().await?;
    let switched = Switched::start(&options.program, &site).await?;
    println!(
        "| processor time of a request | with the recorder, us | without, us | ratio: median | mean | standard error |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for scene in &scenes {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            let [recorded, unrecorded] = switched.round(scene, round % 2 == 0, options.secs).await?;
            with.push(recorded);
            without.push(unrecorded);
        }
        let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
        let (mean, error) = mean_and_error(&ratios);
        let medians = [&with, &without, &ratios].map(|samples| median(samples).unwrap_or_default());
        let [with, without, ratio] = medians;
        println!("| {} | {with:.1} | {without:.1} | {ratio:.4} | {mean:.4} | {error:.4} |", scene.name);
    }
    switched.program.end().await?;
    Ok(())
}

/// The mean, and the standard error of the mean.
fn mean_and_error(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}
