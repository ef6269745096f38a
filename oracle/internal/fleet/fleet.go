// Package fleet asks Karpenter's AWS provider which CreateFleet request it would send for a claim.
//
// Everything that decides is Karpenter's own: the template turns types and requirements into a NodeClaim, and the
// instance provider with its filters, the subnet provider, the launch template provider and the resolver of images
// make a request of it. Only EC2 is ours: it writes down what it is asked.
package fleet

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	awscache "github.com/aws/karpenter-provider-aws/pkg/cache"
	"github.com/aws/karpenter-provider-aws/pkg/providers/amifamily"
	"github.com/aws/karpenter-provider-aws/pkg/providers/arczonalshift"
	"github.com/aws/karpenter-provider-aws/pkg/providers/instance"
	"github.com/aws/karpenter-provider-aws/pkg/providers/launchtemplate"
	"github.com/aws/karpenter-provider-aws/pkg/providers/placementgroup"
	"github.com/aws/karpenter-provider-aws/pkg/providers/subnet"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/veneer-io/veneer/oracle/internal/awstypes"
	"github.com/veneer-io/veneer/oracle/internal/batch"
)

// Case is a claim with its types, and the node class that it is launched with.
type Case struct {
	Types            []Type                                        `json:"types"`
	Requirements     []karpv1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	Requests         corev1.ResourceList                           `json:"requests"`
	MinValuesRelaxed bool                                          `json:"minValuesRelaxed"`
	BestEffort       bool                                          `json:"bestEffort"`
	Subnets          []Subnet                                      `json:"subnets"`
	AMIs             []v1.AMI                                      `json:"amis"`
	Context          *string                                       `json:"context"`
	// What the launch templates are made of, if they are asked for, too.
	Launch *Launch `json:"launch"`
}

// Type is a type of the region with the offerings of the case in place of its own.
type Type struct {
	Name      string     `json:"name"`
	Offerings []Offering `json:"offerings"`
}

// Offering is one way to buy a type. Overlay is the text of a price or priceAdjustment, or empty.
type Offering struct {
	Zone         string       `json:"zone"`
	CapacityType string       `json:"capacityType"`
	Price        float64      `json:"price"`
	Overlay      string       `json:"overlay"`
	Available    bool         `json:"available"`
	Reservation  *Reservation `json:"reservation"`
}

// Reservation is the capacity reservation behind a reserved offering.
type Reservation struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	Interruptible bool   `json:"interruptible"`
	Capacity      int    `json:"capacity"`
}

// Subnet is a subnet with its free addresses.
type Subnet struct {
	ID        string `json:"id"`
	Zone      string `json:"zone"`
	Addresses int32  `json:"addresses"`
}

// Answer is the request, or why there is none.
type Answer struct {
	Error   string   `json:"error,omitempty"`
	Request *Request `json:"request,omitempty"`
	// Every launch template and the fleet request as they go over the wire, if that was asked for.
	Templates []map[string]string `json:"templates,omitempty"`
	Fleet     map[string]string   `json:"fleet,omitempty"`
}

// Verb reads the region's types once, from the case of the verb instance-types that --region names.
func Verb(flags *flag.FlagSet) func() (batch.Answer, error) {
	region := flags.String("region", "", "file with a case of the verb instance-types")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		text, err := os.ReadFile(*region)
		if err != nil {
			return nil, err
		}
		var in awstypes.Case
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, fmt.Errorf("reading %s: %w", *region, err)
		}
		types, err := awstypes.Build(awstypes.Defaults(), in)
		if err != nil {
			return nil, err
		}
		known := lo.KeyBy(types, func(it *cloudprovider.InstanceType) string { return it.Name })
		zones := lo.SliceToMap(in.Zones, func(zone awstypes.Zone) (string, string) { return zone.Name, zone.ID })
		return batch.Typed(func(in Case) (Answer, error) { return answer(in, known, zones) }), nil
	}
}

func answer(in Case, known map[string]*cloudprovider.InstanceType, zones map[string]string) (Answer, error) {
	ctx, cancel := context.WithCancel(awstypes.Defaults())
	defer cancel()
	core := *options.FromContext(ctx)
	core.FeatureGates.ReservedCapacity = true
	core.MinValuesPolicy = lo.Ternary(in.BestEffort, options.MinValuesPolicyBestEffort, options.MinValuesPolicyStrict)
	ctx = options.ToContext(ctx, &core)

	types, err := instanceTypes(in.Types, known, zones)
	if err != nil {
		return Answer{}, err
	}
	// The template sorts the list that it is given.
	claim := (&scheduling.NodeClaimTemplate{
		NodePoolName:        "default",
		InstanceTypeOptions: slices.Clone(types),
		Requirements:        requirements.NewNodeSelectorRequirementsWithMinValues(in.Requirements...),
	}).ToNodeClaim()
	claim.Spec.Resources.Requests = in.Requests
	if in.MinValuesRelaxed {
		claim.Annotations = lo.Assign(claim.Annotations, map[string]string{karpv1.NodeClaimMinValuesRelaxedAnnotationKey: "true"})
	}
	if in.Launch != nil {
		return in.Launch.answer(ctx, in, claim, types, zones)
	}
	ec2 := &recorder{}
	_, err = provider(ctx, ec2, in.Subnets, cluster{}).Create(ctx, nodeClass(in, zones), claim, map[string]string{}, types)
	if err != nil {
		return Answer{Error: err.Error()}, nil
	}
	return Answer{Request: ec2.request()}, nil
}

func instanceTypes(in []Type, known map[string]*cloudprovider.InstanceType, zones map[string]string) ([]*cloudprovider.InstanceType, error) {
	result := []*cloudprovider.InstanceType{}
	for _, wanted := range in {
		found, ok := known[wanted.Name]
		if !ok {
			return nil, fmt.Errorf("no type %s", wanted.Name)
		}
		it := &cloudprovider.InstanceType{Name: found.Name, Requirements: found.Requirements, Capacity: found.Capacity, Overhead: found.Overhead}
		for _, offering := range wanted.Offerings {
			it.Offerings = append(it.Offerings, offering.make(zones))
		}
		result = append(result, it)
	}
	return result, nil
}

func (o Offering) make(zones map[string]string) *cloudprovider.Offering {
	in := func(key, value string) *requirements.Requirement {
		return requirements.NewRequirement(key, corev1.NodeSelectorOpIn, value)
	}
	labels := requirements.NewRequirements(
		in(karpv1.CapacityTypeLabelKey, o.CapacityType),
		in(corev1.LabelTopologyZone, o.Zone),
		in(v1.LabelTopologyZoneID, zones[o.Zone]),
	)
	result := &cloudprovider.Offering{Requirements: labels, Price: o.Price, Available: o.Available}
	if reservation := o.Reservation; reservation != nil {
		labels.Add(
			in(cloudprovider.ReservationIDLabel, reservation.ID),
			in(v1.LabelCapacityReservationType, reservation.Type),
			in(v1.LabelCapacityReservationInterruptible, fmt.Sprint(reservation.Interruptible)),
		)
		result.ReservationCapacity = reservation.Capacity
	} else {
		for _, key := range []string{cloudprovider.ReservationIDLabel, v1.LabelCapacityReservationType, v1.LabelCapacityReservationInterruptible} {
			labels.Add(requirements.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	if o.Overlay != "" {
		result.ApplyPriceOverlay(o.Overlay)
	}
	return result
}

func nodeClass(in Case, zones map[string]string) *v1.EC2NodeClass {
	result := &v1.EC2NodeClass{}
	result.Name = "default"
	result.Spec.AMIFamily = &v1.AMIFamilyAL2023
	result.Spec.Context = in.Context
	result.Status.AMIs = in.AMIs
	result.Status.SecurityGroups = []v1.SecurityGroup{{ID: "sg-1"}}
	for _, subnet := range in.Subnets {
		result.Status.Subnets = append(result.Status.Subnets, v1.Subnet{ID: subnet.ID, Zone: subnet.Zone, ZoneID: zones[subnet.Zone]})
	}
	return result
}

func provider(ctx context.Context, ec2 *recorder, subnets []Subnet, of cluster) *instance.DefaultProvider {
	newCache := func() *cache.Cache { return cache.New(time.Hour, time.Hour) }
	addresses := newCache()
	for _, subnet := range subnets {
		addresses.SetDefault(subnet.ID, subnet.Addresses)
	}
	dns, ca, cidr := lo.CoalesceOrEmpty(of.DNS, "10.0.100.10"), of.CA, of.CIDR
	if of == (cluster{}) {
		ca, cidr = lo.ToPtr("Y2EK"), lo.ToPtr("10.100.0.0/16")
	}
	region := lo.CoalesceOrEmpty(of.Region, "us-east-1")
	subnetProvider := subnet.NewDefaultProvider(ec2, newCache(), addresses)
	placementGroups := placementgroup.NewProvider(ec2, newCache(), newCache())
	templates := launchtemplate.NewDefaultProvider(ctx, newCache(), ec2, nil, amifamily.NewDefaultResolver(region), nil,
		subnetProvider, placementGroups, ca, make(chan struct{}), net.ParseIP(dns), "https://cluster")
	templates.ClusterCIDR.Store(cidr)
	return instance.NewDefaultProvider(ctx, region, nil, ec2, awscache.NewUnavailableOfferings(), subnetProvider, templates, nil,
		placementGroups, arczonalshift.NewNoopProvider(), newCache())
}

// sorted orders by a text.
func sorted[T any](items []T, key func(T) string) []T {
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return items
}
