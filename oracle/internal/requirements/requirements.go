// Package requirements asks Karpenter's scheduling package about label requirements.
package requirements

import (
	"cmp"
	"reflect"
	"slices"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/veneer-io/veneer/oracle/internal/batch"
)

// Case is two lists of requirements and the values to probe them with.
type Case struct {
	A      []v1.NodeSelectorRequirementWithMinValues `json:"a"`
	B      []v1.NodeSelectorRequirementWithMinValues `json:"b"`
	Probes []string                                  `json:"probes,omitempty"`
}

// Requirement is one key after everything about it was put together.
type Requirement struct {
	Key        string   `json:"key"`
	Operator   string   `json:"operator"`
	Complement bool     `json:"complement,omitempty"`
	Values     []string `json:"values"`
	Gte        *int64   `json:"gte,omitempty"`
	Lte        *int64   `json:"lte,omitempty"`
	MinValues  *int     `json:"minValues,omitempty"`
	Len        int      `json:"len"`
	Text       string   `json:"text"`
	// Has holds one letter per probe, y or n.
	Has string `json:"has"`
}

// Set is a list of requirements after everything was put together, by key.
type Set struct {
	Keys      []Requirement                             `json:"keys"`
	Selectors []v1.NodeSelectorRequirementWithMinValues `json:"selectors"`
	Text      string                                    `json:"text"`
}

// Result answers a case.
type Result struct {
	A Set `json:"a"`
	B Set `json:"b"`
	// Both is A narrowed by B.
	Both Set `json:"both"`
	// Overlap tells for every common key, by key, whether the two sides share a value: y or n.
	Overlap string `json:"overlap"`
	// A as what there is, B as what is demanded.
	Intersects          bool `json:"intersects"`
	Compatible          bool `json:"compatible"`
	CompatibleWellKnown bool `json:"compatibleWellKnown"`
	// The other way round.
	ReverseIntersects          bool `json:"reverseIntersects"`
	ReverseCompatible          bool `json:"reverseCompatible"`
	ReverseCompatibleWellKnown bool `json:"reverseCompatibleWellKnown"`
	// Conflicts are the keys that Intersects complains about, sorted.
	Conflicts []string `json:"conflicts"`
}

// Verb answers cases.
var Verb = batch.Plain(answer)

func answer(in Case) (Result, error) {
	a := scheduling.NewNodeSelectorRequirementsWithMinValues(in.A...)
	b := scheduling.NewNodeSelectorRequirementsWithMinValues(in.B...)
	both := scheduling.NewRequirements(a.Values()...)
	both.Add(b.Values()...)
	result := Result{
		A:                          describe(a, in.Probes),
		B:                          describe(b, in.Probes),
		Both:                       describe(both, in.Probes),
		Intersects:                 a.Intersects(b) == nil,
		Compatible:                 a.IsCompatible(b),
		CompatibleWellKnown:        a.IsCompatible(b, scheduling.AllowUndefinedWellKnownLabels),
		ReverseIntersects:          b.Intersects(a) == nil,
		ReverseCompatible:          b.IsCompatible(a),
		ReverseCompatibleWellKnown: b.IsCompatible(a, scheduling.AllowUndefinedWellKnownLabels),
		Conflicts:                  []string{},
	}
	for _, key := range sortedKeys(a) {
		if !b.Has(key) {
			continue
		}
		result.Overlap += letter(a.Get(key).HasIntersection(b.Get(key)))
		if scheduling.NewRequirements(a.Get(key)).Intersects(scheduling.NewRequirements(b.Get(key))) != nil {
			result.Conflicts = append(result.Conflicts, key)
		}
	}
	return result, nil
}

func describe(set scheduling.Requirements, probes []string) Set {
	result := Set{Keys: []Requirement{}, Selectors: set.NodeSelectorRequirements(), Text: set.String()}
	for _, key := range sortedKeys(set) {
		requirement := set.Get(key)
		fields := reflect.ValueOf(requirement).Elem()
		values := requirement.Values()
		slices.Sort(values)
		has := ""
		for _, probe := range probes {
			has += letter(requirement.Has(probe))
		}
		result.Keys = append(result.Keys, Requirement{
			Key:        requirement.Key,
			Operator:   string(requirement.Operator()),
			Complement: fields.FieldByName("complement").Bool(),
			Values:     values,
			Gte:        bound(fields.FieldByName("gte")),
			Lte:        bound(fields.FieldByName("lte")),
			MinValues:  requirement.MinValues,
			Len:        requirement.Len(),
			Text:       requirement.String(),
			Has:        has,
		})
	}
	slices.SortFunc(result.Selectors, func(x, y v1.NodeSelectorRequirementWithMinValues) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Operator, y.Operator))
	})
	return result
}

func sortedKeys(set scheduling.Requirements) []string {
	keys := set.Keys().UnsortedList()
	slices.Sort(keys)
	return keys
}

func bound(field reflect.Value) *int64 {
	if field.IsNil() {
		return nil
	}
	value := field.Elem().Int()
	return &value
}

func letter(yes bool) string {
	if yes {
		return "y"
	}
	return "n"
}
