// Package overlay asks Karpenter's NodeOverlay controller and its instance type store, on a fake API server and the
// KWOK provider's instance types.
package overlay

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/catalogue"
)

// Case is a cluster: pools and overlays as manifests, and what there is to launch.
type Case struct {
	// Catalog is a path or the list itself, in the KWOK provider's format; the default is -catalog.
	Catalog json.RawMessage `json:"catalog,omitempty"`
	// Types restricts the catalogue to these names.
	Types     []string               `json:"types,omitempty"`
	NodePools []v1.NodePool          `json:"nodePools"`
	Overlays  []v1alpha1.NodeOverlay `json:"overlays"`
}

// Overlay is the verdict on one overlay.
type Overlay struct {
	Name       string `json:"name"`
	Ready      string `json:"ready"`
	Validation string `json:"validation"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

// Type is one catalogue entry that overlays changed in a pool.
type Type struct {
	// Index counts the entries of the restricted catalogue; names are not unique there.
	Index int    `json:"index"`
	Name  string `json:"name"`
	// Offerings are those that an overlay priced, each with its position in the type's list and the new price.
	Offerings [][2]float64 `json:"offerings,omitempty"`
	// Capacity and Allocatable are given in full if an overlay changed them.
	Capacity    map[corev1.ResourceName]string `json:"capacity,omitempty"`
	Allocatable map[corev1.ResourceName]string `json:"allocatable,omitempty"`
}

// Pool is what overlays did to the instance types of one pool; entries that are not listed are as in the catalogue.
type Pool struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
	Types []Type `json:"types,omitempty"`
	// Evaluated counts the entries and offerings that were looked at.
	Entries   int `json:"entries"`
	Offerings int `json:"offerings"`
}

// Result answers a case.
type Result struct {
	Error string `json:"reconcileError,omitempty"`
	// What the controller and the store took, and the most memory this process has had, for benchmarks.
	ReconcileMs float64 `json:"reconcileMs"`
	ApplyMs     float64 `json:"applyMs"`
	PeakRSSMiB  float64 `json:"peakRssMib"`

	Overlays []Overlay `json:"overlays"`
	Pools    []Pool    `json:"pools"`
}

// Verb answers cases.
func Verb(flags *flag.FlagSet) func() (batch.Answer, error) {
	path := flags.String("catalog", "", "instance types in the KWOK provider's format; its own by default")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		catalogues := catalogue.New()
		if _, err := catalogues.Get(*path); err != nil {
			return nil, err
		}
		return batch.Typed(func(in Case) (Result, error) {
			chosen, err := catalogues.Choose(in.Catalog, *path)
			if err != nil {
				return Result{}, err
			}
			return evaluate(chosen.Only(in.Types), in)
		}), nil
	}
}

func evaluate(instanceTypes []*cloudprovider.InstanceType, in Case) (Result, error) {
	ctx := context.Background()
	kube, err := apiServer(in)
	if err != nil {
		return Result{}, err
	}
	provider := kwok.NewCloudProvider(ctx, kube, instanceTypes)
	store := nodeoverlay.NewInstanceTypeStore()
	cluster := state.NewCluster(clock.RealClock{}, kube, provider)
	controller := nodeoverlay.NewController(clock.RealClock{}, kube, provider, store, cluster)

	result := Result{Overlays: []Overlay{}, Pools: []Pool{}}
	started := time.Now()
	if _, err := controller.Reconcile(ctx, reconcile.Request{}); err != nil {
		result.Error = err.Error()
	}
	result.ReconcileMs = batch.Milliseconds(time.Since(started))
	for i := range in.Overlays {
		overlay := &v1alpha1.NodeOverlay{}
		if err := kube.Get(ctx, types.NamespacedName{Name: in.Overlays[i].Name}, overlay); err != nil {
			return Result{}, err
		}
		result.Overlays = append(result.Overlays, verdict(overlay))
	}
	for i := range in.NodePools {
		pool, applied := changes(ctx, store, provider, &in.NodePools[i], instanceTypes)
		result.Pools = append(result.Pools, pool)
		result.ApplyMs += batch.Milliseconds(applied)
	}
	result.PeakRSSMiB = batch.PeakRSSMiB()
	return result, nil
}

func apiServer(in Case) (client.Client, error) {
	objects := []client.Object{}
	for i := range in.NodePools {
		objects = append(objects, in.NodePools[i].DeepCopy())
	}
	for i := range in.Overlays {
		objects = append(objects, in.Overlays[i].DeepCopy())
	}
	// The fake panics on what a real API server refuses, such as two objects of one name; a case may not do that.
	seen := map[string]bool{}
	for _, object := range objects {
		key := fmt.Sprintf("%T %s", object, object.GetName())
		if object.GetName() == "" || seen[key] {
			return nil, fmt.Errorf("object without a name of its own: %s", key)
		}
		seen[key] = true
	}
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.NodeOverlay{}).Build(), nil
}

func verdict(overlay *v1alpha1.NodeOverlay) Overlay {
	result := Overlay{Name: overlay.Name, Ready: "Unknown", Validation: "Unknown"}
	for _, condition := range overlay.Status.Conditions {
		switch condition.Type {
		case "Ready":
			result.Ready = string(condition.Status)
		case v1alpha1.ConditionTypeValidationSucceeded:
			result.Validation = string(condition.Status)
			result.Reason, result.Message = condition.Reason, condition.Message
		}
	}
	return result
}

func changes(ctx context.Context, store *nodeoverlay.InstanceTypeStore, provider *kwok.CloudProvider, pool *v1.NodePool, catalogue []*cloudprovider.InstanceType) (Pool, time.Duration) {
	result := Pool{Name: pool.Name}
	base, err := provider.GetInstanceTypes(ctx, pool)
	started := time.Now()
	if err == nil {
		base, err = store.ApplyAll(pool.Name, base)
	}
	applied := time.Since(started)
	if err != nil {
		result.Error = err.Error()
		return result, applied
	}
	// The store has a second door, for one type at a time; it must lead to the same place.
	if len(base) > 0 {
		if single, err := store.Apply(pool.Name, catalogue[0]); err != nil || single.IsPricingOverlayApplied() != base[0].IsPricingOverlayApplied() {
			result.Error = fmt.Sprintf("Apply differs from ApplyAll for %s: %v", base[0].Name, err)
		}
	}
	for i, it := range base {
		result.Entries++
		result.Offerings += len(it.Offerings)
		entry := Type{Index: i, Name: it.Name}
		for j, offering := range it.Offerings {
			if offering.IsPriceOverlaid() || offering.Price != catalogue[i].Offerings[j].Price {
				entry.Offerings = append(entry.Offerings, [2]float64{float64(j), offering.Price})
			}
		}
		if it.IsCapacityOverlayApplied() {
			entry.Capacity = texts(it.Capacity)
			entry.Allocatable = texts(it.Allocatable())
		}
		if entry.Offerings != nil || entry.Capacity != nil {
			result.Types = append(result.Types, entry)
		}
	}
	return result, applied
}

func texts(list corev1.ResourceList) map[corev1.ResourceName]string {
	result := map[corev1.ResourceName]string{}
	for name, quantity := range list {
		result[name] = quantity.String()
	}
	return result
}
