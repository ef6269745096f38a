package schedule

import (
	"flag"
	"fmt"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/catalogue"
)

// Measured is what scheduling took, from parsed objects to claims with ordered candidates, and what came out.
type Measured struct {
	// PrepareMs is for the topology and the scheduler, SolveMs for Solve, OrderMs for the candidates by price.
	PrepareMs float64 `json:"prepareMs"`
	SolveMs   float64 `json:"solveMs"`
	OrderMs   float64 `json:"orderMs"`
	// CPUMs is the processor time of all three.
	CPUMs         float64 `json:"cpuMs"`
	Claims        int     `json:"claims"`
	Unschedulable int     `json:"unschedulable"`
	Hourly        float64 `json:"hourly"`
	PeakRSSMiB    float64 `json:"peakRssMib"`
}

// Bench measures cases of one pool and pending pods, set up as Karpenter's own benchmark sets itself up: an API server
// that holds nothing, five workers, no time limit.
func Bench(flags *flag.FlagSet) func() (batch.Answer, error) {
	path := flags.String("catalog", "", "instance types in the KWOK provider's format; its own by default")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		catalogues := catalogue.New()
		return batch.Typed(func(in Case) (Measured, error) {
			chosen, err := catalogues.Choose(in.Catalog, *path)
			if err != nil {
				return Measured{}, err
			}
			return measure(chosen.Only(in.Types), in)
		}), nil
	}
}

func measure(instanceTypes []*cloudprovider.InstanceType, in Case) (Measured, error) {
	ctx := karpenterContext(in.Options)
	objects, err := decode(in.Objects)
	if err != nil {
		return Measured{}, err
	}
	pools, pods := []*v1.NodePool{}, []*corev1.Pod{}
	offered := map[string][]*cloudprovider.InstanceType{}
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.NodePool:
			pools = append(pools, object)
			offered[object.Name] = instanceTypes
		case *corev1.Pod:
			pods = append(pods, object)
		default:
			return Measured{}, fmt.Errorf("%T cannot be measured", object)
		}
	}
	kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	provider := &recorder{CloudProvider: kwok.NewCloudProvider(ctx, kube, instanceTypes), base: map[*cloudprovider.InstanceType]*cloudprovider.InstanceType{}}
	for _, it := range instanceTypes {
		provider.base[it] = it
	}
	state := state.NewCluster(clock.RealClock{}, kube, provider)

	used := processorTime()
	started := time.Now()
	topology, err := scheduling.NewTopology(ctx, kube, state, nil, pools, offered, pods)
	if err != nil {
		return Measured{}, err
	}
	scheduler := scheduling.NewScheduler(ctx, kube, pools, state, nil, topology, offered, nil,
		events.NewRecorder(&record.FakeRecorder{}), clock.RealClock{}, nil, nil, scheduling.NumConcurrentReconciles(5))
	prepared := time.Now()
	results, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return Measured{}, err
	}
	solved := time.Now()
	results = results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
	ordered := time.Now()

	measured := Measured{
		PrepareMs:     batch.Milliseconds(prepared.Sub(started)),
		SolveMs:       batch.Milliseconds(solved.Sub(prepared)),
		OrderMs:       batch.Milliseconds(ordered.Sub(solved)),
		CPUMs:         batch.Milliseconds(processorTime() - used),
		Claims:        len(results.NewNodeClaims),
		Unschedulable: len(results.PodErrors),
		// Before the prices are looked up, which is not part of the work.
		PeakRSSMiB: batch.PeakRSSMiB(),
	}
	cluster := &cluster{provider: provider}
	for _, claim := range results.NewNodeClaims {
		measured.Hourly += cluster.cheapest(claim.InstanceTypeOptions[0], claim.Requirements).Price
	}
	return measured, nil
}

func processorTime() time.Duration {
	usage := syscall.Rusage{}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
