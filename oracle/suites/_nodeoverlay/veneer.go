// This file is copied into a copy of Karpenter's package nodeoverlay (see ../build). Whenever Karpenter has decided about
// NodeOverlays, Veneer decides too: verdicts, prices and capacity must be the same.
package nodeoverlay

import (
	"slices"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/veneer"
)

type (
	veneerQuestion struct {
		Ask       string           `json:"ask"`
		Objects   []map[string]any `json:"objects"`
		Types     []veneer.Type    `json:"types"`
		WellKnown []string         `json:"wellKnown"`
	}
	veneerAnswer struct {
		// Verdicts are Ready, Conflict or Invalid, by overlay.
		Verdicts map[string]string `json:"verdicts"`
		// Types of each NodePool, in the order of the question.
		NodePools map[string][]veneerType `json:"nodePools"`
	}
	veneerType struct {
		Prices   []float64         `json:"prices"`
		Capacity map[string]string `json:"capacity"`
	}
)

func compareWithVeneer(pools []v1.NodePool, types map[string][]*cloudprovider.InstanceType, overlays []v1alpha1.NodeOverlay,
	conflicts []string, invalid map[string]error, store *internalInstanceTypeStore) {
	question := veneerQuestion{Ask: "overlays", WellKnown: v1.WellKnownLabels.UnsortedList(), Objects: []map[string]any{}}
	slices.Sort(question.WellKnown)
	names := []string{}
	for _, pool := range pools {
		names = append(names, pool.Name)
		question.Objects = append(question.Objects, veneer.Described("NodePool", pool))
	}
	for _, overlay := range overlays {
		question.Objects = append(question.Objects, veneer.Described("NodeOverlay", overlay))
	}
	of := map[string][]*cloudprovider.InstanceType{}
	for _, name := range names {
		of[name] = types[name]
	}
	var owners []string
	question.Types, owners = veneer.Types(names, of)
	answer := veneerAnswer{}
	veneer.Ask(question, &answer)
	for _, overlay := range overlays {
		verdict := "Ready"
		if slices.Contains(conflicts, overlay.Name) {
			verdict = "Conflict"
		} else if invalid[overlay.Name] != nil {
			verdict = "Invalid"
		}
		if ours := answer.Verdicts[overlay.Name]; ours != verdict {
			veneer.Differ("NodeOverlay %s is %s, Veneer says %s", overlay.Name, verdict, ours)
		}
	}
	for _, name := range names {
		ours := []veneerType{}
		for at, it := range answer.NodePools[name] {
			if owners[at] == "" || owners[at] == name {
				ours = append(ours, it)
			}
		}
		for at, it := range types[name] {
			compareType(name, store.apply(name, it), ours[at])
		}
	}
}

func compareType(pool string, it *cloudprovider.InstanceType, ours veneerType) {
	for at, offering := range it.Offerings {
		if offering.Price != ours.Prices[at] {
			veneer.Differ("NodePool %s, %s, offering %d costs %v, Veneer says %v", pool, it.Name, at, offering.Price, ours.Prices[at])
		}
	}
	if len(it.Capacity) != len(ours.Capacity) {
		veneer.Differ("NodePool %s, %s has %v, Veneer says %v", pool, it.Name, it.Capacity, ours.Capacity)
	}
	for resource, quantity := range it.Capacity {
		if ours.Capacity[string(resource)] != quantity.String() {
			veneer.Differ("NodePool %s, %s has %s of %s, Veneer says %s", pool, it.Name, quantity.String(), resource, ours.Capacity[string(resource)])
		}
	}
}
