//! Compilation, streams, events.

use super::*;

#[test]
fn compile_errors_are_told() {
    let Some(_standin) = standin() else { return };
    let options = CompileOptions {
        name: Some("broken.cu".into()),
        ..Default::default()
    };
    let source = "extern \"C\" __global__ void f(float *x) {\n    x[0] = nothing;\n}\n";
    match compile_ptx_with_opts(source, options) {
        Err(CompileError::CompileError { log, .. }) => {
            let log = log.to_string_lossy();
            assert!(log.contains("broken.cu:2:"), "{log}");
            assert!(log.contains("nothing"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    // No header of the host's is there, as none of the toolkit's is.
    assert!(compile_ptx("#include <cmath>\n").is_err());
}

/// Copies from page-locked memory happen when the stream comes to them; events
/// order streams and hosts.
#[test]
fn streams_run_by_themselves_and_events_order_them() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    // SAFETY: the order is this test's own matter.
    unsafe { gpu.ctx.disable_event_tracking() };
    let spin = gpu.kernel("spin");
    let other = gpu.ctx.new_stream().expect("a stream");
    let (n, rounds) = (1000u32, 20_000u32);
    let mut x = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    gpu.stream.synchronize().expect("zeros");
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = gpu.stream.record_event(timed).expect("an event");
    let mut launch = gpu.stream.launch_builder(&spin);
    launch.arg(&mut x).arg(&n).arg(&rounds);
    unsafe { launch.launch(line(1, 1)) }.expect("a launch");
    let end = gpu.stream.record_event(timed).expect("an event");
    assert!(!end.is_complete(), "the launch waited");
    // Without an event, the other stream does not wait.
    let early = other.record_event(None).expect("an event");
    early.synchronize().expect("an event");
    assert!(!end.is_complete(), "one stream waited for the other");
    other.wait(&end).expect("a wait");
    let seen = other.clone_dtoh(&x).expect("a copy");
    assert!(end.is_complete());
    assert!(seen.iter().all(|&v| v == 20_000.0));
    assert!(start.elapsed_ms(&end).expect("a time") > 0.0);
}

#[test]
fn page_locked_memory_is_read_when_the_copy_runs() {
    let Some(_standin) = standin() else { return };
    let gpu = gpu();
    // SAFETY: as above, and this test shows what happens without order.
    unsafe { gpu.ctx.disable_event_tracking() };
    let spin = gpu.kernel("spin");
    let mut x = gpu.stream.alloc_zeros::<f32>(1000).expect("memory");
    let (mut from_pinned, mut from_pageable) = (
        gpu.stream.alloc_zeros::<f32>(1).expect("memory"),
        gpu.stream.alloc_zeros::<f32>(1).expect("memory"),
    );
    let mut pinned = unsafe { gpu.ctx.alloc_pinned::<f32>(1) }.expect("memory");
    let mut pageable = [1.0f32];
    pinned.as_mut_slice().expect("memory")[0] = 1.0;
    let mut launch = gpu.stream.launch_builder(&spin);
    launch.arg(&mut x).arg(&1000u32).arg(&20_000u32);
    unsafe { launch.launch(line(1, 1)) }.expect("a launch");
    let address = {
        gpu.stream
            .memcpy_htod(&pageable, &mut from_pageable)
            .expect("a copy");
        pageable[0] = 2.0;
        from_pinned.device_ptr_mut(&gpu.stream).0
    };
    // SAFETY: both are as long as the copy.
    unsafe {
        let p = pinned.as_mut_ptr().expect("memory");
        sys::cuMemcpyHtoDAsync_v2(address, p.cast(), 4, gpu.stream.cu_stream())
            .result()
            .expect("a copy");
        *p = 2.0;
    }
    assert_eq!(pageable, [2.0]);
    assert_eq!(
        gpu.stream.clone_dtoh(&from_pageable).expect("a copy"),
        [1.0]
    );
    assert_eq!(gpu.stream.clone_dtoh(&from_pinned).expect("a copy"), [2.0]);
}
