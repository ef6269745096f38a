package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

var decoder = serializer.NewCodecFactory(scheme.Scheme).UniversalDeserializer()

// A cluster is Karpenter's view of the manifests, ready to be scheduled.
type cluster struct {
	ctx         context.Context
	kube        client.Client
	provider    *recorder
	provisioner *provisioning.Provisioner
	state       *state.Cluster
	events      events.Recorder
	clock       clock.Clock
	// claims are as they were given.
	claims []*v1.NodeClaim
}

// The recorder remembers which catalogue entry an overlaid instance type was made from.
type recorder struct {
	cloudprovider.CloudProvider
	catalogue []*cloudprovider.InstanceType
	base      map[*cloudprovider.InstanceType]*cloudprovider.InstanceType
}

func (r *recorder) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	result, err := r.CloudProvider.GetInstanceTypes(ctx, pool)
	for i, it := range result {
		r.base[it] = r.catalogue[i]
	}
	return result, err
}

func newCluster(instanceTypes []*cloudprovider.InstanceType, in Case) (*cluster, error) {
	ctx := karpenterContext(in.Options)
	objects, err := decode(in.Objects)
	if err != nil {
		return nil, err
	}
	kube := apiServer(objects)
	undecorated := kwok.NewCloudProvider(ctx, kube, instanceTypes)
	store := nodeoverlay.NewInstanceTypeStore()
	provider := &recorder{
		CloudProvider: overlay.Decorate(undecorated, kube, store),
		catalogue:     instanceTypes,
		base:          map[*cloudprovider.InstanceType]*cloudprovider.InstanceType{},
	}
	cluster := &cluster{ctx: ctx, kube: kube, provider: provider, events: events.NewRecorder(&record.FakeRecorder{}), clock: clock.RealClock{}}
	if in.Now != nil {
		cluster.clock = clocktesting.NewFakeClock(*in.Now)
	}
	for _, object := range objects {
		if claim, ok := object.(*v1.NodeClaim); ok {
			cluster.claims = append(cluster.claims, claim)
		}
	}
	cluster.state = state.NewCluster(cluster.clock, kube, provider)
	if in.Options.NodeOverlay {
		controller := nodeoverlay.NewController(cluster.clock, kube, undecorated, store, cluster.state)
		if _, err := controller.Reconcile(ctx, reconcile.Request{}); err != nil {
			return nil, err
		}
	}
	if err := fill(ctx, cluster.state, kube, objects); err != nil {
		return nil, err
	}
	cluster.provisioner = provisioning.NewProvisioner(kube, cluster.events, provider, cluster.state,
		cluster.clock, deviceallocation.NewController(kube), virtualpods.NewVirtualPodCache(kube))
	return cluster, nil
}

// Karpenter's defaults, and what the case says.
func karpenterContext(chosen Options) context.Context {
	gates := options.DefaultFeatureGates()
	gates.NodeOverlay = chosen.NodeOverlay
	parsed := &options.Options{
		CPURequests:       1000,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		FeatureGates:      gates,
	}
	if chosen.PreferencePolicy != "" {
		parsed.PreferencePolicy = chosen.PreferencePolicy
	}
	if chosen.MinValuesPolicy != "" {
		parsed.MinValuesPolicy = chosen.MinValuesPolicy
	}
	return options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), parsed)
}

func decode(manifests []json.RawMessage) ([]client.Object, error) {
	objects := []client.Object{}
	seen := map[string]bool{}
	for i, manifest := range manifests {
		decoded, _, err := decoder.Decode(manifest, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		object, ok := decoded.(client.Object)
		if !ok {
			return nil, fmt.Errorf("objects[%d]: %T is not an object", i, decoded)
		}
		// The fake panics on what a real API server refuses, such as two objects of one name; a case may not do that.
		key := fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName())
		if object.GetName() == "" || seen[key] {
			return nil, fmt.Errorf("objects[%d]: no name of its own: %s", i, key)
		}
		seen[key] = true
		complete(object)
		objects = append(objects, object)
	}
	return objects, nil
}

// complete adds what a live cluster would have added: the API server its defaults, the kube-scheduler a mark on each pod
// that fits nowhere, and Karpenter's readiness controller one on each pool.
func complete(object client.Object) {
	switch object := object.(type) {
	case *corev1.Pod:
		defaults(&object.Spec)
		if object.Spec.NodeName == "" && len(object.Spec.SchedulingGates) == 0 && !podutils.FailedToSchedule(object) {
			object.Status.Phase = corev1.PodPending
			object.Status.Conditions = append(object.Status.Conditions, corev1.PodCondition{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			})
		}
	case *appsv1.DaemonSet:
		defaults(&object.Spec.Template.Spec)
	case *v1.NodePool:
		if len(object.Status.Conditions) == 0 {
			conditions := object.StatusConditions()
			conditions.SetTrue(v1.ConditionTypeValidationSucceeded)
			conditions.SetTrue(v1.ConditionTypeNodeClassReady)
		}
	}
}

// defaults are those of the API server that scheduling depends on: limits are requests where none are stated, and ports
// are for TCP.
func defaults(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for name, limit := range containers[i].Resources.Limits {
				if _, stated := containers[i].Resources.Requests[name]; stated {
					continue
				}
				if containers[i].Resources.Requests == nil {
					containers[i].Resources.Requests = corev1.ResourceList{}
				}
				containers[i].Resources.Requests[name] = limit
			}
			for j := range containers[i].Ports {
				if containers[i].Ports[j].Protocol == "" {
					containers[i].Ports[j].Protocol = corev1.ProtocolTCP
				}
			}
		}
	}
}

// apiServer has the field indexes that Karpenter's operator sets up. Karpenter asks for volumes by name and namespace;
// a real client leaves the namespace out for kinds that have none, the fake finds nothing.
func apiServer(objects []client.Object) client.Client {
	copies := []client.Object{}
	for _, object := range objects {
		copies = append(copies, object.DeepCopyObject().(client.Object))
	}
	return fake.NewClientBuilder().
		WithScheme(scheme.Scheme).
		WithObjects(copies...).
		WithStatusSubresource(&v1alpha1.NodeOverlay{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&v1.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*v1.NodeClaim).Status.ProviderID} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, kube client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, ok := object.(*corev1.PersistentVolume); ok {
					key.Namespace = ""
				}
				return kube.Get(ctx, key, object, opts...)
			},
		}).
		Build()
}

// fill tells the cluster state what its informers would: claims, then nodes, then daemonsets and pods.
func fill(ctx context.Context, state *state.Cluster, kube client.Client, objects []client.Object) error {
	for _, object := range objects {
		if claim, ok := object.(*v1.NodeClaim); ok {
			state.UpdateNodeClaim(claim.DeepCopy())
		}
	}
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			if err := state.UpdateNode(ctx, node.DeepCopy()); err != nil {
				return fmt.Errorf("node %s: %w", node.Name, err)
			}
		}
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *appsv1.DaemonSet:
			if err := state.UpdateDaemonSet(ctx, object.DeepCopy()); err != nil {
				return fmt.Errorf("daemonset %s: %w", object.Name, err)
			}
		case *corev1.Pod:
			// A pod whose node is unknown is tried again by the informer and has no effect until then.
			if err := state.UpdatePod(ctx, object.DeepCopy()); err != nil && !errors.IsNotFound(err) {
				return fmt.Errorf("pod %s/%s: %w", object.Namespace, object.Name, err)
			}
		}
	}
	state.SetSynced(true)
	return nil
}
