package schedule

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/veneer-io/veneer/oracle/internal/batch"
)

// Result is what Karpenter decided, in the shape of `veneer simulate -o json`.
type Result struct {
	NewNodeClaims []Claim         `json:"newNodeClaims"`
	ExistingNodes []Node          `json:"existingNodes"`
	Unschedulable []Unschedulable `json:"unschedulable"`
	Cost          Cost            `json:"cost"`
	// SolveMs is the time of the provisioner's Schedule.
	SolveMs float64 `json:"solveMs"`
}

// Claim is a node to launch.
type Claim struct {
	NodePool string            `json:"nodePool"`
	Pods     []string          `json:"pods"`
	Requests map[string]string `json:"requests"`
	// InstanceTypes are ordered by price, then name, and Prices are theirs.
	InstanceTypes []string                                  `json:"instanceTypes"`
	Prices        []float64                                 `json:"prices"`
	Cheapest      *Cheapest                                 `json:"cheapest"`
	Requirements  []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
}

// Cheapest is the offering that the model expects to be launched.
type Cheapest struct {
	InstanceType string  `json:"instanceType"`
	CapacityType string  `json:"capacityType"`
	Zone         string  `json:"zone"`
	Price        float64 `json:"price"`
	ListPrice    float64 `json:"listPrice"`
}

// Node is an existing or in-flight node that takes pods.
type Node struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

// Unschedulable is a pod without a place.
type Unschedulable struct {
	Pod     string   `json:"pod"`
	Reasons []string `json:"reasons"`
}

// Cost adds up the cheapest offerings.
type Cost struct {
	Hourly     float64 `json:"hourly"`
	ListHourly float64 `json:"listHourly"`
}

func run(instanceTypes []*cloudprovider.InstanceType, in Case) (Result, error) {
	cluster, err := newCluster(instanceTypes, in)
	if err != nil {
		return Result{}, err
	}
	started := time.Now()
	results, err := cluster.provisioner.Schedule(cluster.ctx)
	if err != nil {
		return Result{}, err
	}
	elapsed := time.Since(started)
	result, err := cluster.describe(results)
	result.SolveMs = batch.Milliseconds(elapsed)
	return result, err
}

func (c *cluster) describe(results scheduling.Results) (Result, error) {
	result := Result{NewNodeClaims: []Claim{}, ExistingNodes: []Node{}, Unschedulable: []Unschedulable{}}
	known := map[string]bool{}
	for _, claim := range results.NewNodeClaims {
		described := c.claim(claim)
		result.NewNodeClaims = append(result.NewNodeClaims, described)
		if described.Cheapest != nil {
			result.Cost.Hourly += described.Cheapest.Price
			result.Cost.ListHourly += described.Cheapest.ListPrice
		}
		mark(known, described.Pods)
	}
	for _, node := range results.ExistingNodes {
		if len(node.Pods) > 0 {
			described := Node{Node: node.Name(), Pods: names(node.Pods)}
			result.ExistingNodes = append(result.ExistingNodes, described)
			mark(known, described.Pods)
		}
	}
	for pod, reason := range results.PodErrors {
		// Pods of a claim that was truncated below its minValues are in the error map only.
		result.Unschedulable = append(result.Unschedulable, Unschedulable{Pod: name(pod), Reasons: texts(reason)})
		known[name(pod)] = true
	}
	if err := c.ignored(&result, known); err != nil {
		return Result{}, err
	}
	slices.SortFunc(result.NewNodeClaims, func(a, b Claim) int { return cmp.Compare(a.Pods[0], b.Pods[0]) })
	slices.SortFunc(result.ExistingNodes, func(a, b Node) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(result.Unschedulable, func(a, b Unschedulable) int { return cmp.Compare(a.Pod, b.Pod) })
	return result, nil
}

// ignored adds the pods that the provisioner refused before scheduling; its results do not mention them.
func (c *cluster) ignored(result *Result, known map[string]bool) error {
	pods, err := nodeutils.GetProvisionablePods(c.ctx, c.kube)
	if err != nil {
		return err
	}
	// Without a NodePool to launch from it decides nothing about the pods of nodes that go away either.
	leaving, err := c.state.DeepCopyNodes().Deleting().CurrentlyReschedulablePods(c.ctx, c.kube, clock.RealClock{}, c.events)
	if err != nil {
		return err
	}
	for _, pod := range append(pods, leaving...) {
		if known[name(pod)] {
			continue
		}
		reasons := texts(c.provisioner.Validate(c.ctx, pod))
		if len(reasons) == 0 {
			reasons = []string{"no dynamic nodepools found"}
		}
		result.Unschedulable = append(result.Unschedulable, Unschedulable{Pod: name(pod), Reasons: reasons})
	}
	return nil
}

func (c *cluster) claim(claim *scheduling.NodeClaim) Claim {
	result := Claim{
		NodePool:      claim.NodePoolName,
		Pods:          names(claim.Pods),
		Requests:      quantities(claim.Spec.Resources.Requests),
		Requirements:  claim.Requirements.NodeSelectorRequirements(),
		InstanceTypes: []string{},
		Prices:        []float64{},
	}
	slices.SortFunc(result.Requirements, func(a, b v1.NodeSelectorRequirementWithMinValues) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator))
	})
	for i := range result.Requirements {
		slices.Sort(result.Requirements[i].Values)
	}
	candidates := []Cheapest{}
	for _, it := range claim.InstanceTypeOptions {
		candidates = append(candidates, c.cheapest(it, claim.Requirements))
	}
	// Go's sort leaves equal prices in any order; by name there is one order to compare.
	slices.SortStableFunc(candidates, func(a, b Cheapest) int {
		return cmp.Or(cmp.Compare(a.Price, b.Price), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.ListPrice, b.ListPrice))
	})
	for i := range candidates {
		result.InstanceTypes = append(result.InstanceTypes, candidates[i].InstanceType)
		result.Prices = append(result.Prices, candidates[i].Price)
	}
	if len(candidates) > 0 {
		result.Cheapest = &candidates[0]
	}
	return result
}

// cheapest is the lowest available price among the offerings that the claim's requirements allow, as in Karpenter's
// OrderByPrice; of equal ones the first by capacity type and zone.
func (c *cluster) cheapest(it *cloudprovider.InstanceType, allowed requirements.Requirements) Cheapest {
	best := Cheapest{InstanceType: it.Name, Price: math.MaxFloat64}
	for i, offering := range it.Offerings {
		if !offering.Available || !allowed.IsCompatible(offering.Requirements, requirements.AllowUndefinedWellKnownLabels) {
			continue
		}
		found := Cheapest{
			InstanceType: it.Name,
			CapacityType: offering.CapacityType(),
			Zone:         offering.Requirements.Get(corev1.LabelTopologyZone).Any(),
			Price:        offering.Price,
			ListPrice:    c.provider.base[it].Offerings[i].Price,
		}
		if cmp.Or(cmp.Compare(found.Price, best.Price), cmp.Compare(found.CapacityType, best.CapacityType), cmp.Compare(found.Zone, best.Zone)) < 0 {
			best = found
		}
	}
	return best
}

// signature is equal for results that do not differ but in time.
func (r Result) signature() string {
	r.SolveMs = 0
	r.Unschedulable = slices.Clone(r.Unschedulable)
	for i := range r.Unschedulable {
		// Messages print sets and maps in any order.
		r.Unschedulable[i].Reasons = nil
	}
	r.NewNodeClaims = slices.Clone(r.NewNodeClaims)
	for i := range r.NewNodeClaims {
		r.NewNodeClaims[i].InstanceTypes = r.NewNodeClaims[i].certain()
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// certain leaves out the types that share the last price of a truncated list: which of them stayed is left to Go's sort.
func (c Claim) certain() []string {
	if len(c.InstanceTypes) < scheduling.MaxInstanceTypes {
		return c.InstanceTypes
	}
	last := c.Prices[len(c.Prices)-1]
	return c.InstanceTypes[:slices.Index(c.Prices, last)]
}

func mark(known map[string]bool, pods []string) {
	for _, pod := range pods {
		known[pod] = true
	}
}

func name(pod *corev1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}

func names(pods []*corev1.Pod) []string {
	result := []string{}
	for _, pod := range pods {
		result = append(result, name(pod))
	}
	slices.Sort(result)
	return result
}

func texts(err error) []string {
	result := []string{}
	for _, reason := range multierr.Errors(err) {
		result = append(result, reason.Error())
	}
	return result
}

func quantities(list corev1.ResourceList) map[string]string {
	result := map[string]string{}
	for name, quantity := range list {
		result[string(name)] = plain(quantity)
	}
	return result
}

// plain is an integer, or thousandths.
func plain(quantity resource.Quantity) string {
	if thousandths := quantity.MilliValue(); thousandths%1000 != 0 {
		return strconv.FormatInt(thousandths, 10) + "m"
	}
	return strconv.FormatInt(quantity.Value(), 10)
}
