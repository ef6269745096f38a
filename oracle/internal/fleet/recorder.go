package fleet

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/samber/lo"

	sdk "github.com/aws/karpenter-provider-aws/pkg/aws"
)

// Request is a CreateFleet request with what the launch templates of its configs say. Configs are sorted, because the
// provider takes them from maps; overrides are in its order.
type Request struct {
	Context          string   `json:"context"`
	Configs          []Config `json:"configs"`
	Target           string   `json:"target"`
	SpotStrategy     string   `json:"spotStrategy"`
	OnDemandStrategy string   `json:"onDemandStrategy"`
	Type             string   `json:"type"`
	Total            int32    `json:"total"`
}

// Config is a launch template and its overrides.
type Config struct {
	Image       string     `json:"image"`
	MaxPods     int        `json:"maxPods"`
	EFACount    int        `json:"efaCount"`
	Reservation string     `json:"reservation"`
	Tenancy     string     `json:"tenancy"`
	Overrides   []Override `json:"overrides"`
}

// Override is one thing to launch.
type Override struct {
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	Subnet       string  `json:"subnet"`
	Image        string  `json:"image"`
	Priority     float64 `json:"priority"`
}

// recorder is an EC2 that has nothing, grants everything and remembers it.
type recorder struct {
	sdk.EC2API
	sync.Mutex
	templates map[string]*ec2types.RequestLaunchTemplateData
	fleet     *ec2.CreateFleetInput
	// The same as they go over the wire.
	wire      map[string]map[string]string
	wireFleet map[string]string
}

func (r *recorder) DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.NotFoundException"}
}

func (r *recorder) CreateLaunchTemplate(_ context.Context, input *ec2.CreateLaunchTemplateInput, _ ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error) {
	r.Lock()
	defer r.Unlock()
	if r.templates == nil {
		r.templates = map[string]*ec2types.RequestLaunchTemplateData{}
		r.wire = map[string]map[string]string{}
	}
	r.templates[*input.LaunchTemplateName] = input.LaunchTemplateData
	r.wire[*input.LaunchTemplateName] = templateOnTheWire(input)
	return &ec2.CreateLaunchTemplateOutput{LaunchTemplate: &ec2types.LaunchTemplate{LaunchTemplateName: input.LaunchTemplateName}}, nil
}

func (r *recorder) CreateFleet(_ context.Context, input *ec2.CreateFleetInput, _ ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	r.Lock()
	defer r.Unlock()
	r.fleet = input
	r.wireFleet = fleetOnTheWire(input)
	first := input.LaunchTemplateConfigs[0].Overrides[0]
	return &ec2.CreateFleetOutput{Instances: []ec2types.CreateFleetInstance{{
		InstanceIds:  []string{"i-1"},
		InstanceType: first.InstanceType,
		LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{Overrides: &ec2types.FleetLaunchTemplateOverrides{
			AvailabilityZone: first.AvailabilityZone,
			InstanceType:     first.InstanceType,
			SubnetId:         first.SubnetId,
		}},
	}}}, nil
}

var maxPods = regexp.MustCompile(`maxPods: (\d+)`)

func (r *recorder) request() *Request {
	r.Lock()
	defer r.Unlock()
	in := r.fleet
	result := &Request{
		Context: lo.FromPtr(in.Context),
		Target:  string(in.TargetCapacitySpecification.DefaultTargetCapacityType),
		Type:    string(in.Type),
		Total:   lo.FromPtr(in.TargetCapacitySpecification.TotalTargetCapacity),
	}
	if in.SpotOptions != nil {
		result.SpotStrategy = string(in.SpotOptions.AllocationStrategy)
	}
	if in.OnDemandOptions != nil {
		result.OnDemandStrategy = string(in.OnDemandOptions.AllocationStrategy)
	}
	for _, from := range in.LaunchTemplateConfigs {
		template := r.templates[*from.LaunchTemplateSpecification.LaunchTemplateName]
		config := Config{Image: *template.ImageId, Tenancy: string(template.Placement.Tenancy)}
		if script, err := base64.StdEncoding.DecodeString(*template.UserData); err == nil {
			if found := maxPods.FindSubmatch(script); found != nil {
				config.MaxPods, _ = strconv.Atoi(string(found[1]))
			}
		}
		for _, card := range template.NetworkInterfaces {
			if lo.FromPtr(card.InterfaceType) == "efa" {
				config.EFACount++
			}
		}
		if target := template.CapacityReservationSpecification.CapacityReservationTarget; target != nil {
			config.Reservation = *target.CapacityReservationId
		}
		for _, each := range from.Overrides {
			config.Overrides = append(config.Overrides, Override{
				InstanceType: string(each.InstanceType),
				Zone:         *each.AvailabilityZone,
				Subnet:       *each.SubnetId,
				Image:        *each.ImageId,
				Priority:     *each.Priority,
			})
		}
		result.Configs = append(result.Configs, config)
	}
	sorted(result.Configs, func(c Config) string {
		return fmt.Sprintf("%s/%06d/%02d/%s", c.Image, c.MaxPods, c.EFACount, c.Reservation)
	})
	return result
}
