// Package awstypes asks Karpenter's AWS provider which instance types it makes of what EC2 answers, for an
// EC2NodeClass that says nothing special.
package awstypes

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/patrickmn/go-cache"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	awscache "github.com/aws/karpenter-provider-aws/pkg/cache"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	"github.com/aws/karpenter-provider-aws/pkg/providers/arczonalshift"
	"github.com/aws/karpenter-provider-aws/pkg/providers/instancetype"
	"github.com/aws/karpenter-provider-aws/pkg/providers/instancetype/offering"
	"github.com/aws/karpenter-provider-aws/pkg/providers/pricing"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/instancetypes"
)

// Case is a region: where the shapes are (a file, name → what DescribeInstanceTypes answers), its zones, and in
// which of them each type is offered.
type Case struct {
	Shapes  string              `json:"shapes"`
	Region  string              `json:"region"`
	Zones   []Zone              `json:"zones"`
	Offered map[string][]string `json:"offered"`
}

// Zone is an availability zone.
type Zone struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// Verb answers with the types that are offered, by name. On-demand prices are the provider's static ones.
var Verb = batch.Plain(answer)

func answer(in Case) ([]instancetypes.Type, error) {
	types, err := Build(Defaults(), in)
	if err != nil {
		return nil, err
	}
	return instancetypes.Describe(types), nil
}

// Build makes the types that are offered, by name, with the provider's own code.
func Build(ctx context.Context, in Case) ([]*cloudprovider.InstanceType, error) {
	text, err := os.ReadFile(in.Shapes)
	if err != nil {
		return nil, err
	}
	shapes := map[ec2types.InstanceType]ec2types.InstanceTypeInfo{}
	if err := json.Unmarshal(text, &shapes); err != nil {
		return nil, fmt.Errorf("reading %s: %w", in.Shapes, err)
	}
	nodeClass := &v1.EC2NodeClass{}
	nodeClass.Spec.AMIFamily = &v1.AMIFamilyAL2023
	zones := sets.New[string]()
	for _, zone := range in.Zones {
		zones.Insert(zone.Name)
		nodeClass.Status.Subnets = append(nodeClass.Status.Subnets, v1.Subnet{ID: "subnet-" + zone.ID, Zone: zone.Name, ZoneID: zone.ID})
	}
	resolver := instancetype.NewDefaultResolver(in.Region)
	types := []*cloudprovider.InstanceType{}
	for name, offered := range in.Offered {
		if shape, ok := shapes[ec2types.InstanceType(name)]; ok {
			types = append(types, resolver.Resolve(ctx, shape, offered, nodeClass))
		}
	}
	slices.SortFunc(types, func(a, b *cloudprovider.InstanceType) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	offerings := offering.NewDefaultProvider(
		pricing.NewDefaultProvider(nil, nil, in.Region, true),
		nil,
		nil,
		awscache.NewUnavailableOfferings(),
		cache.New(time.Hour, time.Hour),
		arczonalshift.NewNoopProvider(),
		nil,
	)
	return offerings.InjectOfferings(ctx, types, shapes, nodeClass, zones), nil
}

// Defaults are the options of a provider that was started without flags.
func Defaults() context.Context {
	flags := &options.FlagSet{FlagSet: flag.NewFlagSet("defaults", flag.ContinueOnError)}
	aws := &awsoptions.Options{}
	aws.AddFlags(flags)
	return awsoptions.ToContext(options.ToContext(context.Background(), &options.Options{}), aws)
}
