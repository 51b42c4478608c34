//! Calls whose guests get their clock readings and random bytes from the caller.

use std::sync::Arc;

use cofferdam_runtime::{CallContext, FixedInputs, Owner, Services};

use crate::kit::{candidates, context, router, runtime, summary, tool};

fn fixed(seed: u64) -> CallContext {
    CallContext { inputs: Some(Arc::new(FixedInputs::new(1_234_567, seed))), ..context() }
}

#[tokio::test]
async fn fixed_inputs_replace_all_clocks_and_random_bytes() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let read = async |context: &CallContext| {
        let called = tool.invoke(context, Services::default(), "inputs", b"{}", b"{}").await;
        called.unwrap().unwrap().for_model
    };
    let first = read(&fixed(7)).await;
    assert!(first.starts_with("1234560 1234560 0 ["), "{first}");
    assert_eq!(first, read(&fixed(7)).await);
    assert_ne!(first, read(&fixed(8)).await);
    assert_ne!(read(&context()).await, read(&context()).await, "the machine's random bytes differ");
}

#[tokio::test]
async fn an_instance_with_fixed_inputs_serves_one_call_only() {
    let runtime = runtime();
    let router = router(&runtime);
    let owned = |context| CallContext { owner: Some(Owner::new("key")), ..context };
    let idle = async |context: CallContext| {
        router.route(&context, &summary("a"), &candidates(1), 1).await.unwrap().unwrap();
        runtime.gauges().idle
    };
    assert_eq!(idle(owned(fixed(7))).await, 0, "it was not kept");
    assert_eq!(idle(owned(context())).await, 1);
    assert_eq!(idle(owned(fixed(7))).await, 1, "it did not use the idle instance");
}
