#[test]
fn time() {
    use std::time::Instant;
    let path = format!(
        "{}/go/pkg/mod/sigs.k8s.io/karpenter@v1.14.1/kwok/examples/aws_instance_types.json",
        std::env::var("HOME").unwrap()
    );
    let text = std::fs::read_to_string(path).unwrap();
    for _ in 0..4 {
        let t = Instant::now();
        let c = veneer_engine::catalogue::kwok::parse(&text, "x").unwrap();
        eprintln!("kwok {} {:?}", c.types.len(), t.elapsed());
        let t = Instant::now();
        let c = veneer_engine::catalogue::aws::region("us-east-1").unwrap();
        eprintln!("aws {} {:?}", c.facts.len(), t.elapsed());
        let t = Instant::now();
        let c = veneer_engine::catalogue::aws::regions().unwrap();
        eprintln!("regions {} {:?}", c.len(), t.elapsed());
    }
}
