//! The commands on the stand-in, and without any CUDA.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use pplx::backend::cuda::{Arch, CUDA, DeviceInfo, Precision, footprint};
use pplx::backend::{Numerics, Partition};
use pplx::experiment::PlacementRequest;
use pplx::plan::{Machine, Placement, Resolution, Subject};

use crate::cases;
use crate::cuda_standin::{for_command, without_cuda};
use crate::support::skip;
use crate::support::tiny::{Tiny, text};

struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        Tiny::llama().write(project.path("llama.gguf"));
        std::fs::write(project.path("t.txt"), text(200)).unwrap();
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn pplx(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
        command.current_dir(self.0.path()).args(arguments);
        command.env("PPLX_CACHE", self.path("cache"));
        for variable in ["PPLX_TEST_MODELS", "PPLX_SHARED", "PPLX_CUDA_PATH"] {
            command.env_remove(variable);
        }
        command
    }
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

const SCORE: [&str; 6] = ["score", "llama.gguf", "-f", "t.txt", "-c", "32"];

fn mean_nll(command: &mut Command) -> (f64, serde_json::Value) {
    let (code, stdout, stderr) = ended(command.arg("--json"));
    assert_eq!(code, Some(0), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    (json["mean_nll"].as_f64().unwrap(), json)
}

#[test]
fn scores_on_the_device() {
    let project = Project::new();
    let (want, _) = mean_nll(project.pplx(&SCORE).args(["--device", "cpu"]));
    for (options, placement, layers) in [
        (&["--device", "cuda"][..], "cuda", "cuda[0,3)"),
        (&[], "cuda", "cuda[0,3)"),
        (&["--gpu-layers", "1"], "gpu_layers=1", "cuda[0,1)+cpu[1,3)"),
        (
            &["--gpu-layers", "1", "--first-layer", "1"],
            "gpu_layers=1+1",
            "cpu[0,1)+cuda[1,2)+cpu[2,3)",
        ),
        (
            &["--gpu-layers", "1", "--cycle"],
            "gpu_layers=1+cycle",
            "cycle cuda[0,1)..[2,3)",
        ),
    ] {
        let mut command = project.pplx(&SCORE);
        let (got, json) = mean_nll(for_command(command.args(options)));
        assert!((got - want).abs() < 1e-5, "{options:?}: {got} for {want}");
        assert_eq!(json["placement"], placement);
        assert_eq!(json["layer_placement"], layers);
    }
    for (numerics, most) in [("f16", 0.02), ("bf16", 0.2)] {
        let mut command = project.pplx(&SCORE);
        command.args(["--numerics", numerics]);
        let (got, json) = mean_nll(for_command(&mut command));
        let error = (got - want).abs();
        assert!(error > 1e-6 && error < most, "{numerics}: {got} for {want}");
        assert_eq!(
            (&json["placement"], &json["numerics"]),
            (&"cuda".into(), &numerics.into())
        );
        let engine = pplx::run::engine(Some("CUDA stand-in (CPU)"));
        assert_eq!(json["engine"], engine);
        // Some layers would be computed otherwise.
        let mut command = project.pplx(&SCORE);
        command.args(["--numerics", numerics, "--gpu-layers", "1"]);
        let (code, _, stderr) = ended(for_command(&mut command));
        assert_eq!(code, Some(2));
        assert!(stderr.contains("is not for layers on cpu"), "{stderr}");
    }
    let mut command = project.pplx(&SCORE);
    command.args(["--gpu-layers", "1", "--first-layer", "3"]);
    let (code, _, stderr) = ended(for_command(&mut command));
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("begins beyond the model's 3 layers"),
        "{stderr}"
    );
}

/// Without cuBLAS a kernel of ours multiplies.
#[test]
fn without_cublas() {
    let project = Project::new();
    let folder = project.path("libraries");
    std::fs::create_dir(&folder).unwrap();
    let mut command = project.pplx(&SCORE);
    for_command(&mut command);
    let all = command
        .get_envs()
        .find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let all = all.and_then(|(_, path)| path).unwrap().to_owned();
    for entry in std::fs::read_dir(&all).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.contains(".so") && !name.contains("cublas") {
            std::os::unix::fs::symlink(&path, folder.join(name)).unwrap();
        }
    }
    let (code, stdout, _) = ended(project.pplx(&["doctor"]).env("LD_LIBRARY_PATH", &folder));
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("cuBLAS   none: products run slower"),
        "{stdout}"
    );
    assert!(stdout.contains("nvidia-cublas-cu12"), "{stdout}");
    let (want, _) = mean_nll(project.pplx(&SCORE).args(["--device", "cpu"]));
    let mut command = project.pplx(&SCORE);
    command
        .args(["--device", "cuda"])
        .env("LD_LIBRARY_PATH", &folder);
    let (got, _) = mean_nll(&mut command);
    assert!((got - want).abs() < 1e-5, "{got} for {want}");

    // NVRTC alone is missing.
    for file in ["libnvrtc.so", "libnvrtc.so.12"] {
        std::fs::remove_file(folder.join(file)).unwrap();
    }
    let mut doctor = project.pplx(&["doctor", "--gpu"]);
    let (code, stdout, stderr) = ended(doctor.env("LD_LIBRARY_PATH", &folder));
    assert_eq!(code, Some(1));
    assert!(stdout.contains("device   0: CUDA stand-in"), "{stdout}");
    assert!(stderr.contains("nvidia-cuda-nvrtc-cu12"), "{stderr}");
}

/// `PPLX_CUDA_PATH` is enough, and is looked at first.
#[test]
fn libraries_in_a_named_folder() {
    let project = Project::new();
    let mut command = project.pplx(&["doctor", "--gpu"]);
    for_command(&mut command);
    let path = command
        .get_envs()
        .find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let path = path.and_then(|(_, path)| path).unwrap().to_owned();
    command
        .env_remove("LD_LIBRARY_PATH")
        .env("PPLX_CUDA_PATH", &path);
    let (code, stdout, stderr) = ended(&mut command);
    assert_eq!(code, Some(0), "{stderr}");
    for part in [
        "driver   CUDA",
        "compute capability 8.0",
        "NVRTC",
        "cuBLAS",
        "kernels  ready",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
}

/// Compiled kernels that cannot be loaded are compiled again.
#[test]
fn a_broken_cache_is_mended() {
    let project = Project::new();
    let doctor = || ended(for_command(&mut project.pplx(&["doctor", "--gpu"])));
    assert_eq!(doctor().0, Some(0));
    let folder = std::fs::read_dir(project.path("cache/kernels")).unwrap();
    let files: Vec<PathBuf> = folder.map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let code = std::fs::read(&files[0]).unwrap();
    std::fs::write(&files[0], "no code").unwrap();
    let (status, _, stderr) = doctor();
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), code);
}

#[test]
fn without_a_driver() {
    // A machine with a real one has it where the system looks.
    if Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        skip("no-gpu", "the driver is there");
        return;
    }
    let project = Project::new();
    let (code, _, stderr) = ended(without_cuda(&mut project.pplx(&["doctor", "--gpu"])));
    assert_eq!(code, Some(1));
    for part in [
        "libcuda",
        "cannot be loaded; looked for libcuda.so",
        "install NVIDIA's driver",
    ] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    let mut command = project.pplx(&SCORE);
    let (code, _, stderr) = ended(without_cuda(command.args(["--device", "cuda"])));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("placement 'cuda' cannot be run: the CUDA driver library"));
    let mut command = project.pplx(&SCORE);
    let (code, _, stderr) = ended(without_cuda(command.args(["--numerics", "bf16"])));
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("numerics 'bf16' needs a GPU: the CUDA driver"),
        "{stderr}"
    );
    // Nobody who does not ask for it hears of it.
    let (code, _, stderr) = ended(without_cuda(&mut project.pplx(&SCORE)));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// A device that fails in the second of three runs: the others have their rows.
#[test]
fn a_sweep_keeps_its_rows() {
    let project = Project::new();
    let experiment = r#"name = "x"

[sweep]
corpora = ["t.txt"]
contexts = [32]
placements = ["cpu", "cuda", { gpu_layers = 1 }]

[[models]]
path = "llama.gguf"
"#;
    std::fs::write(project.path("x.toml"), experiment).unwrap();
    let mut command = project.pplx(&["run", "x.toml"]);
    for_command(&mut command).env("STANDIN_FAIL_ALLOCATION", "4");
    let (code, _, stderr) = ended(&mut command);
    assert_eq!(code, Some(1), "{stderr}");
    let mut reader = csv::Reader::from_path(project.path("results/x.csv")).unwrap();
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|c| c == name).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.unwrap()).collect();
    let status = |placement: &str| {
        let row = rows.iter().find(|r| &r[column("placement")] == placement);
        row.unwrap()[column("status")].to_owned()
    };
    assert_eq!(status("cpu"), "ok");
    assert!(
        status("cuda").contains("out of device memory"),
        "{}",
        status("cuda")
    );
    assert_eq!(status("gpu_layers=1"), "ok");
}

/// What `auto` becomes depends on what the device has free.
#[test]
fn auto_takes_what_fits() {
    let tiny = (cases::by_name("gemma3").build)();
    let model = tiny.model().unwrap();
    let arch = Arch { major: 8, minor: 0 };
    let subject = Subject {
        model: Some(&model),
        n_ctx: 32,
        numerics: Numerics::Exact,
    };
    let of = |partition: Partition| {
        footprint(&model, &partition.share(CUDA), Precision::F32, 32, arch).unwrap()
    };
    let n = model.n_layer();
    let whole = of(Partition::whole(CUDA, n)).least();
    let single = of(Partition::cycle(CUDA, n, 1));
    let resolve = |needed: u64, asked| {
        let machine = Machine::with(
            CUDA,
            Ok(Arc::new(DeviceInfo {
                name: "a GPU".to_owned(),
                arch,
                // A sixteenth is kept in reserve.
                free_bytes: needed.div_ceil(15) * 16,
                total_bytes: 1 << 40,
            })),
        );
        Resolution::new(asked, &machine, subject)
    };
    let auto = |needed| resolve(needed, PlacementRequest::Auto).unwrap();
    assert_eq!(auto(whole).placement, Placement::Whole(CUDA));
    let cycle = |layers_per_window| Placement::Cycle {
        device: CUDA,
        layers_per_window,
    };
    let below = auto(whole - 4096);
    assert!(
        matches!(below.placement, Placement::Cycle { .. }),
        "{below:?}"
    );
    assert!(below.reason.unwrap().contains("needs"));
    assert_eq!(auto(single.least()).placement, cycle(1));
    assert_eq!(auto(single.least() - 4096).placement, Placement::CPU);
    let error = resolve(
        whole - 4096,
        PlacementRequest::Fixed(Placement::Whole(CUDA)),
    )
    .unwrap_err();
    let error = error.to_string();
    assert!(error.contains("with cycle = true fits"), "{error}");
    let error = resolve(
        single.least() - 4096,
        PlacementRequest::Fixed(Placement::Whole(CUDA)),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("no cycle fits either"),
        "{error}"
    );
}
