package schedule

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/cost"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/catalogue"
)

// Consolidated is what each of Karpenter's methods would do first with a cluster as it stands.
type Consolidated struct {
	Empty  []Command `json:"empty"`
	Multi  []Command `json:"multi"`
	Single []Command `json:"single"`
	// Judged says of each proposal of the case why Karpenter would not do it; nothing if it would.
	Judged []string `json:"judged,omitempty"`
}

// Command is nodes that go together.
type Command struct {
	Nodes []string `json:"nodes"`
	// Types are those of the replacement, if there is one.
	Types []string `json:"types,omitempty"`
	// Before is what the nodes cost, After what the cheapest launch of the replacement does.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// unvalidated takes every command: nothing changes between a decision and a second look here.
type unvalidated struct{}

func (unvalidated) Validate(_ context.Context, command disruption.Command, _ time.Duration) (disruption.Command, error) {
	return command, nil
}

// Consolidate answers cases with what Karpenter's own consolidation methods find.
func Consolidate(flags *flag.FlagSet) func() (batch.Answer, error) {
	path := flags.String("catalog", "", "instance types in the KWOK provider's format; its own by default")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		catalogues := catalogue.New()
		return batch.Typed(func(in Case) (Consolidated, error) {
			catalogue, err := catalogues.Choose(in.Catalog, *path)
			if err != nil {
				return Consolidated{}, err
			}
			return consolidate(catalogue.Only(in.Types), in)
		}), nil
	}
}

func consolidate(instanceTypes []*cloudprovider.InstanceType, in Case) (Consolidated, error) {
	cluster, err := newCluster(instanceTypes, in)
	if err != nil {
		return Consolidated{}, err
	}
	// What pools cost is part of what a Balanced pool decides by.
	costs := cost.NewClusterCost(cluster.ctx, cluster.provider, cluster.kube)
	for _, claim := range cluster.claims {
		if err := costs.UpdateNodeClaim(cluster.ctx, claim); err != nil {
			return Consolidated{}, err
		}
	}
	queue := disruption.NewQueue(cluster.kube, cluster.events, cluster.state, cluster.clock, cluster.provisioner)
	shared := disruption.MakeConsolidation(cluster.clock, cluster.state, cluster.kube, cluster.provisioner,
		cluster.provider, cluster.events, queue)
	single := disruption.NewSingleNodeConsolidation(shared, disruption.WithValidator(unvalidated{}))
	answer := Consolidated{}
	for _, method := range []struct {
		disruption.Method
		into *[]Command
	}{
		{disruption.NewEmptiness(shared, disruption.WithValidator(unvalidated{})), &answer.Empty},
		{disruption.NewMultiNodeConsolidation(shared, disruption.WithValidator(unvalidated{})), &answer.Multi},
		{single, &answer.Single},
	} {
		if *method.into, err = cluster.first(queue, method.Method, costs); err != nil {
			return Consolidated{}, err
		}
	}
	for _, nodes := range in.Proposed {
		fault, err := cluster.judge(queue, single, costs, nodes)
		if err != nil {
			return Consolidated{}, err
		}
		answer.Judged = append(answer.Judged, fault)
	}
	return answer, nil
}

// judge says why Karpenter would not let nodes go together, whatever else there is to do, or nothing.
func (c *cluster) judge(queue *disruption.Queue, single *disruption.SingleNodeConsolidation, costs *cost.ClusterCost, nodes []string) (string, error) {
	all, totals, err := disruption.GetCandidatesWithTotals(c.ctx, c.state, c.kube, c.events, c.clock, c.provider,
		single.ShouldDisrupt, single.Class(), queue, costs)
	if err != nil {
		return "", err
	}
	candidates := []*disruption.Candidate{}
	for _, candidate := range all {
		if slices.Contains(nodes, candidate.Name()) {
			candidates = append(candidates, candidate)
		}
	}
	if len(candidates) != len(nodes) {
		return "not all of them are candidates", nil
	}
	results, err := disruption.SimulateScheduling(c.ctx, c.kube, c.state, c.provisioner, c.clock, c.events,
		[]scheduling.Options{scheduling.IsConsolidationSimulation}, candidates...)
	if err != nil {
		return "", err
	}
	command := disruption.Command{Candidates: candidates, Results: results}
	switch {
	case !results.AllNonPendingPodsScheduled():
		return results.NonPendingPodSchedulingErrors(), nil
	case len(results.NewNodeClaims) > 1:
		return "several new nodes", nil
	case len(results.NewNodeClaims) == 1:
		claim := results.NewNodeClaims[0]
		claim.InstanceTypeOptions = claim.InstanceTypeOptions.OrderByPrice(claim.Requirements)
		if _, err := claim.RemoveInstanceTypeOptionsByPriceAndMinValues(claim.Requirements, command.SourceCost()); err != nil {
			return err.Error(), nil
		}
		if len(claim.InstanceTypeOptions) == 0 {
			return "nothing cheaper", nil
		}
		command.Replacements = []*disruption.Replacement{{NodeClaim: claim}}
	}
	if approved, scores := disruption.EvaluateBalancedMove(c.ctx, command, totals); !approved {
		return fmt.Sprintf("not approved: %+v", scores), nil
	}
	return "", nil
}

// first is what a method would do with the cluster as it is.
func (c *cluster) first(queue *disruption.Queue, method disruption.Method, costs *cost.ClusterCost) ([]Command, error) {
	candidates, totals, err := disruption.GetCandidatesWithTotals(c.ctx, c.state, c.kube, c.events, c.clock, c.provider,
		method.ShouldDisrupt, method.Class(), queue, costs)
	if err != nil {
		return nil, err
	}
	if setter, ok := method.(disruption.NodePoolTotalsSetter); ok {
		setter.SetNodePoolTotals(totals)
	}
	// Candidates come in Go's map order, and equals stay as they come.
	slices.SortFunc(candidates, func(a, b *disruption.Candidate) int { return strings.Compare(a.Name(), b.Name()) })
	budgets, err := disruption.BuildDisruptionBudgetMapping(c.ctx, c.state, c.clock, c.kube, c.provider,
		c.events, method.Reason())
	if err != nil {
		return nil, err
	}
	found, err := method.ComputeCommands(c.ctx, budgets, candidates...)
	if err != nil {
		return nil, err
	}
	commands := []Command{}
	for _, command := range found {
		answer := Command{Nodes: command.SourceNodeNames()}
		slices.Sort(answer.Nodes)
		for _, candidate := range command.Candidates {
			answer.Before += candidate.Price
		}
		for _, replacement := range command.Replacements {
			cheapest := math.MaxFloat64
			for _, it := range replacement.InstanceTypeOptions {
				answer.Types = append(answer.Types, it.Name)
				offerings := it.Offerings.Available().Compatible(replacement.Requirements)
				if len(offerings) > 0 {
					cheapest = min(cheapest, offerings.Cheapest().Price)
				}
			}
			answer.After += cheapest
		}
		commands = append(commands, answer)
	}
	return commands, nil
}

var _ disruption.Validator = unvalidated{}
