// This file is copied into a copy of Karpenter's package scheduling (see ../build). It defines the Solve that the
// package's own specs call: Veneer decides, and what it decides is done with Karpenter's own functions.
package scheduling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpopts "sigs.k8s.io/karpenter/pkg/operator/options"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/veneer"
)

// What goes to Veneer and what comes back, one line each.
type (
	veneerQuestion struct {
		Ask       string           `json:"ask"`
		Objects   []map[string]any `json:"objects"`
		Types     []veneer.Type    `json:"types"`
		WellKnown []string         `json:"wellKnown"`
		// Closed are nodes that take no pods.
		Closed  []string      `json:"closed"`
		Options veneerOptions `json:"options"`
	}
	veneerOptions struct {
		MinValues   string `json:"minValues"`
		Preferences string `json:"preferences"`
		Reserved    string `json:"reserved"`
	}
	veneerAnswer struct {
		// Placements are in the order in which they are to be made.
		Placements []veneerPlacement `json:"placements"`
		// Claims are in the order in which they were opened.
		Claims []veneerClaim `json:"claims"`
	}
	veneerPlacement struct {
		Pod         string `json:"pod"`
		Relaxations int    `json:"relaxations"`
		Node        string `json:"node"`
		// Claim counts from 0; its first placement opens it.
		Claim int `json:"claim"`
	}
	veneerClaim struct {
		NodePool      string   `json:"nodePool"`
		InstanceTypes []string `json:"instanceTypes"`
	}
)

// Solve has Veneer decide about the pods.
func (s *Scheduler) Solve(ctx context.Context, pods []*corev1.Pod) (Results, error) {
	for _, pod := range pods {
		s.updateCachedPodData(ctx, pod)
		if s.cachedPodData[pod.UID].HasResourceClaimRequests && s.allocator != nil {
			// Dynamic resource allocation is not supported; nobody is asked.
			return s.karpenterSolve(ctx, pods)
		}
	}
	answer := veneerAnswer{}
	veneer.Ask(s.veneerQuestion(ctx, pods), &answer)
	byID := map[k8stypes.UID]*corev1.Pod{}
	for at, pod := range pods {
		byID[podID(at, pod)] = pod
	}
	claims := make([]*NodeClaim, len(answer.Claims))
	for _, placement := range answer.Placements {
		pod, found := byID[k8stypes.UID(placement.Pod)]
		if !found {
			veneer.Differ("pod %s was not to be placed", placement.Pod)
		}
		delete(byID, k8stypes.UID(placement.Pod))
		s.replay(ctx, pod.DeepCopy(), placement, answer, claims)
	}
	failures := map[*corev1.Pod]error{}
	for at, pod := range pods {
		if _, left := byID[podID(at, pod)]; !left {
			continue
		}
		err := s.trySchedule(ctx, pod.DeepCopy())
		if err == nil {
			veneer.Differ("no place for pod %s/%s, which Karpenter places", pod.Namespace, pod.Name)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		failures[pod] = err
		_ = s.topology.Update(ctx, pod)
		s.updateCachedPodData(ctx, pod)
	}
	for i, claim := range claims {
		compareTypes(claim, answer.Claims[i])
		claim.FinalizeScheduling(s.draDriversForNodeClaim(claim)...)
	}
	// The order in which Karpenter would have left them.
	sort.Slice(s.newNodeClaims, func(a, b int) bool { return len(s.newNodeClaims[a].Pods) < len(s.newNodeClaims[b].Pods) })
	return Results{NewNodeClaims: s.newNodeClaims, ExistingNodes: s.existingNodes, PodErrors: failures}, ctx.Err()
}

// podID names a pod to Veneer; some specs make pods without a UID.
func podID(at int, pod *corev1.Pod) k8stypes.UID {
	if pod.UID == "" {
		return k8stypes.UID(fmt.Sprintf("pod-%d", at))
	}
	return pod.UID
}

// replay makes one placement with Karpenter's own functions, which see the chosen target only.
func (s *Scheduler) replay(ctx context.Context, pod *corev1.Pod, placement veneerPlacement, answer veneerAnswer, claims []*NodeClaim) {
	for range placement.Relaxations {
		if !s.preferences.Relax(ctx, pod) {
			veneer.Differ("pod %s has fewer than %d preferences to drop", pod.Name, placement.Relaxations)
		}
		if err := s.topology.Update(ctx, pod); err != nil {
			veneer.Differ("pod %s: %v", pod.Name, err)
		}
		s.updateCachedPodData(ctx, pod)
	}
	var err error
	switch {
	case placement.Node != "":
		all := s.existingNodes
		s.existingNodes = slices.DeleteFunc(slices.Clone(all), func(node *ExistingNode) bool { return node.Name() != placement.Node })
		err = s.addToExistingNode(ctx, pod)
		s.existingNodes = all
	case claims[placement.Claim] != nil:
		all := s.newNodeClaims
		s.newNodeClaims = []*NodeClaim{claims[placement.Claim]}
		err = s.addToInflightNode(ctx, pod)
		s.newNodeClaims = all
	default:
		all, before := s.nodeClaimTemplates, len(s.newNodeClaims)
		s.nodeClaimTemplates = slices.DeleteFunc(slices.Clone(all), func(template *NodeClaimTemplate) bool {
			return template.NodePoolName != answer.Claims[placement.Claim].NodePool
		})
		err = s.addToNewNodeClaim(ctx, pod)
		s.nodeClaimTemplates = all
		if err == nil && len(s.newNodeClaims) == before+1 {
			claims[placement.Claim] = s.newNodeClaims[before]
		} else if err == nil {
			err = fmt.Errorf("there is no such NodePool")
		}
	}
	if err != nil {
		veneer.Differ("pod %s does not go to %+v: %v", pod.Name, placement, err)
	}
}

// compareTypes sees that both have kept the same instance types.
func compareTypes(claim *NodeClaim, ours veneerClaim) {
	if claim == nil {
		veneer.Differ("a claim of NodePool %s without pods", ours.NodePool)
	}
	theirs := []string{}
	for _, it := range claim.InstanceTypeOptions {
		theirs = append(theirs, it.Name)
	}
	slices.Sort(theirs)
	slices.Sort(ours.InstanceTypes)
	if !slices.Equal(theirs, ours.InstanceTypes) {
		veneer.Differ("instance types of a claim: Karpenter keeps %v, Veneer %v", theirs, ours.InstanceTypes)
	}
}

// veneerQuestion is everything that the scheduler knows.
func (s *Scheduler) veneerQuestion(ctx context.Context, pods []*corev1.Pod) veneerQuestion {
	question := veneerQuestion{Ask: "scheduling", WellKnown: sorted(v1.WellKnownLabels.UnsortedList()), Objects: []map[string]any{}, Closed: []string{}}
	question.Options = veneerOptions{MinValues: "Strict", Preferences: "Respect", Reserved: "Strict"}
	if s.minValuesPolicy == karpopts.MinValuesPolicyBestEffort {
		question.Options.MinValues = "BestEffort"
	}
	if s.preferencePolicy == PreferencePolicyIgnore {
		question.Options.Preferences = "Ignore"
	}
	if s.reservedOfferingMode == ReservedOfferingModeFallback {
		question.Options.Reserved = "Fallback"
	}
	if !karpopts.FromContext(ctx).FeatureGates.ReservedCapacity {
		question.Options.Reserved = "Off"
	}
	// A NodePool without types of its own has none.
	types := maps.Clone(s.instanceTypes)
	for pool := range s.remainingResources {
		types[pool] = s.instanceTypes[pool]
	}
	question.Types, _ = veneer.Types(sorted(slices.Collect(maps.Keys(types))), types)
	for _, pool := range listed[v1.NodePool](ctx, s, &v1.NodePoolList{}, func(list *v1.NodePoolList) []v1.NodePool { return list.Items }) {
		if _, ok := s.remainingResources[pool.Name]; ok {
			question.add("NodePool", pool)
		}
	}
	// Pods that are moved do not go to nodes within their consolidateAfter.
	areMoved := !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return podutils.IsPending(pod) || s.deletingNodeNames.Has(pod.Spec.NodeName)
	})
	s.addMachines(ctx, &question, areMoved)
	placed := map[k8stypes.UID]bool{}
	for at, pod := range pods {
		placed[pod.UID] = true
		waiting := pod.DeepCopy()
		waiting.UID = podID(at, pod)
		waiting.Spec.NodeName = ""
		waiting.Spec.SchedulingGates = nil
		waiting.Status.NominatedNodeName = ""
		waiting.DeletionTimestamp = nil
		question.add("Pod", waiting)
	}
	for _, pod := range listed[corev1.Pod](ctx, s, &corev1.PodList{}, func(list *corev1.PodList) []corev1.Pod { return list.Items }) {
		// The pods of a DaemonSet say what it asks for, wherever they are.
		if (pod.Spec.NodeName != "" || podutils.IsOwnedByDaemonSet(&pod)) && !placed[pod.UID] {
			question.add("Pod", pod)
		}
	}
	for _, set := range listed[appsv1.DaemonSet](ctx, s, &appsv1.DaemonSetList{}, func(list *appsv1.DaemonSetList) []appsv1.DaemonSet { return list.Items }) {
		question.add("DaemonSet", set)
	}
	for _, claim := range listed[corev1.PersistentVolumeClaim](ctx, s, &corev1.PersistentVolumeClaimList{}, func(list *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return list.Items }) {
		question.add("PersistentVolumeClaim", claim)
	}
	for _, volume := range listed[corev1.PersistentVolume](ctx, s, &corev1.PersistentVolumeList{}, func(list *corev1.PersistentVolumeList) []corev1.PersistentVolume { return list.Items }) {
		question.add("PersistentVolume", volume)
	}
	for _, class := range listed[storagev1.StorageClass](ctx, s, &storagev1.StorageClassList{}, func(list *storagev1.StorageClassList) []storagev1.StorageClass { return list.Items }) {
		question.add("StorageClass", class)
	}
	for _, node := range listed[storagev1.CSINode](ctx, s, &storagev1.CSINodeList{}, func(list *storagev1.CSINodeList) []storagev1.CSINode { return list.Items }) {
		question.add("CSINode", node)
	}
	for _, namespace := range listed[corev1.Namespace](ctx, s, &corev1.NamespaceList{}, func(list *corev1.NamespaceList) []corev1.Namespace { return list.Items }) {
		question.add("Namespace", namespace)
	}
	return question
}

// addMachines adds the nodes that take pods as the scheduler knows them, and the others as the API server does: their pods
// count, and nothing goes there.
func (s *Scheduler) addMachines(ctx context.Context, question *veneerQuestion, areMoved bool) {
	nodes, claims := map[string]bool{}, map[string]bool{}
	for _, existing := range s.existingNodes {
		if existing.Node != nil {
			nodes[existing.Node.Name] = true
			if areMoved && existing.isUnderConsolidateAfter {
				question.Closed = append(question.Closed, existing.Node.Name)
			}
			node := existing.Node.DeepCopy()
			node.DeletionTimestamp = nil
			question.add("Node", node)
		}
		if existing.NodeClaim != nil {
			claims[existing.NodeClaim.Name] = true
			claim := existing.NodeClaim.DeepCopy()
			claim.DeletionTimestamp = nil
			question.add("NodeClaim", claim)
		}
	}
	for _, node := range listed[corev1.Node](ctx, s, &corev1.NodeList{}, func(list *corev1.NodeList) []corev1.Node { return list.Items }) {
		if !nodes[node.Name] {
			node.DeletionTimestamp = nil
			question.Closed = append(question.Closed, node.Name)
			question.add("Node", node)
		}
	}
}

func (q *veneerQuestion) add(kind string, object any) {
	q.Objects = append(q.Objects, veneer.Described(kind, object))
}

// listed is every object of a kind; a client without the kind has none.
func listed[T any, L client.ObjectList](ctx context.Context, s *Scheduler, list L, items func(L) []T) []T {
	if err := s.kubeClient.List(ctx, list); err != nil {
		return nil
	}
	return items(list)
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}
