//! Blocks, threads, warps: what kernels compute.

use super::*;

#[test]
fn vectors_add() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let add = gpu.kernel("add");
    let n = 1000u32;
    let a = gpu.stream.clone_htod(&numbers(1000, 1)).expect("a copy");
    let mut sum = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    let mut launch = gpu.stream.launch_builder(&add);
    launch.arg(&mut sum).arg(&a).arg(&a).arg(&n);
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.expect("a launch");
    let sum = gpu.stream.clone_dtoh(&sum).expect("a copy");
    for (s, x) in sum.iter().zip(numbers(1000, 1)) {
        assert_eq!(*s, 2.0 * x);
    }
}

#[test]
fn blocks_and_threads_have_three_dimensions() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("indices");
    let mut out = gpu.stream.alloc_zeros::<u32>(24 * 30 * 4).expect("memory");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out);
    unsafe { launch.launch(config((2, 3, 4), (5, 3, 2), 0)) }.expect("a launch");
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    for (i, at) in out.chunks_exact(4).enumerate() {
        let (block, thread) = ((i / 30) as u32, (i % 30) as u32);
        assert_eq!(at, [block, thread % 5, thread / 5 % 3, thread / 15]);
    }
}

/// Sums of blocks of 256, by shared memory and by shuffles.
#[test]
fn blocks_reduce() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let n = 1000u32;
    let x = numbers(1000, 2);
    let want: Vec<f32> = x.chunks(256).map(|c| c.iter().sum()).collect();
    let x = gpu.stream.clone_htod(&x).expect("a copy");
    for (name, shared) in [("sum_shared", 0), ("sum_warps", 8 * 4)] {
        let kernel = gpu.kernel(name);
        let mut sums = gpu.stream.alloc_zeros::<f32>(4).expect("memory");
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut sums).arg(&x).arg(&n);
        unsafe { launch.launch(config((4, 1, 1), (256, 1, 1), shared)) }.expect("a launch");
        assert_eq!(
            gpu.stream.clone_dtoh(&sums).expect("a copy"),
            want,
            "{name}"
        );
    }
}

#[test]
fn lanes_exchange() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("warp_operations");
    let mut out = gpu.stream.alloc_zeros::<i32>(32 * 12).expect("memory");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out);
    unsafe { launch.launch(line(1, 32)) }.expect("a launch");
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    let thirds = (0..32).step_by(3).fold(0u32, |m, i| m | 1 << i) as i32;
    for (lane, row) in out.chunks_exact(12).enumerate() {
        let l = lane as i32;
        let want = [
            50,
            if l < 3 { l } else { l - 3 },
            if l > 28 { l } else { l + 3 },
            l ^ 1,
            l / 8 * 8 + 2,
            if l % 8 == 7 { l } else { l + 1 },
            thirds,
            1,
            0,
            31 * 32 / 2,
            -31,
            if l < 8 { 7 } else { -1 },
        ];
        assert_eq!(row, want, "lane {lane}");
    }
}

#[test]
fn atomics_and_module_variables() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("atomics");
    let mut scale = gpu
        .module
        .get_global("scale", &gpu.stream)
        .expect("a variable");
    gpu.stream
        .memcpy_htod(&bytes(&[1.0f32, 2.0, 3.0, 4.0]), &mut scale)
        .expect("a copy");
    let mut counter = gpu
        .module
        .get_global("counter", &gpu.stream)
        .expect("a variable");
    gpu.stream.memset_zeros(&mut counter).expect("a fill");
    let n = 1000u32;
    let x: Vec<i32> = numbers(1000, 3).iter().map(|&v| v as i32).collect();
    let mut out = gpu
        .stream
        .clone_htod(&[0, -1000, 1000, -1000])
        .expect("a copy");
    let mut sum = gpu.stream.alloc_zeros::<f32>(1).expect("memory");
    let on_device = gpu.stream.clone_htod(&x).expect("a copy");
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut out).arg(&mut sum).arg(&on_device).arg(&n);
    unsafe { launch.launch(line(8, 128)) }.expect("a launch");
    let (most, least) = (*x.iter().max().expect("one"), *x.iter().min().expect("one"));
    let out = gpu.stream.clone_dtoh(&out).expect("a copy");
    assert_eq!(out, [x.iter().sum::<i32>(), most, least, most]);
    assert_eq!(gpu.stream.clone_dtoh(&sum).expect("a copy"), [2500.0]);
    let counter = gpu.stream.clone_dtoh(&counter).expect("a copy");
    assert_eq!(counter, 1000u32.to_le_bytes());
}

#[test]
fn a_tiled_product_agrees_with_a_loop() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    let kernel = gpu.kernel("matmul");
    let (m, n, k) = (37usize, 50usize, 45usize);
    let (a, b) = (numbers(m * k, 4), numbers(k * n, 5));
    let (on_a, on_b) = (
        gpu.stream.clone_htod(&a).expect("a copy"),
        gpu.stream.clone_htod(&b).expect("a copy"),
    );
    let mut c = gpu.stream.alloc_zeros::<f32>(m * n).expect("memory");
    let (im, jn, pk) = (m as i32, n as i32, k as i32);
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch
        .arg(&mut c)
        .arg(&on_a)
        .arg(&on_b)
        .arg(&im)
        .arg(&jn)
        .arg(&pk);
    unsafe { launch.launch(config((4, 3, 1), (16, 16, 1), 0)) }.expect("a launch");
    let c = gpu.stream.clone_dtoh(&c).expect("a copy");
    assert_eq!(c, host_matmul(&a, &b, m, n, k));
}
