package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	awsoptions "github.com/aws/karpenter-provider-aws/pkg/operator/options"
	"github.com/aws/karpenter-provider-aws/pkg/utils"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// Launch is what launch templates are made of beside what decides about the fleet.
type Launch struct {
	Class         v1.EC2NodeClass   `json:"class"`
	Labels        map[string]string `json:"labels"`
	Taints        []corev1.Taint    `json:"taints"`
	StartupTaints []corev1.Taint    `json:"startupTaints"`
	Cluster       cluster           `json:"cluster"`
}

// cluster is what nodes are told about it.
type cluster struct {
	DNS    string  `json:"dns"`
	CA     *string `json:"ca"`
	CIDR   *string `json:"cidr"`
	Region string  `json:"region"`
}

func (l Launch) answer(ctx context.Context, in Case, claim *karpv1.NodeClaim, types []*cloudprovider.InstanceType, zones map[string]string) (Answer, error) {
	aws := *awsoptions.FromContext(ctx)
	aws.ClusterName = "test"
	ctx = awsoptions.ToContext(ctx, &aws)
	class := l.Class.DeepCopy()
	status := nodeClass(in, zones).Status
	class.Status.AMIs, class.Status.Subnets = status.AMIs, status.Subnets
	class.Spec.Context = in.Context
	claim.Labels = l.Labels
	claim.Spec.Taints, claim.Spec.StartupTaints = l.Taints, l.StartupTaints
	tags, err := utils.GetTags(class, claim, "test")
	if err != nil {
		return Answer{Error: err.Error()}, nil
	}
	ec2 := &recorder{}
	if _, err := provider(ctx, ec2, in.Subnets, l.Cluster).Create(ctx, class, claim, tags, types); err != nil {
		return Answer{Error: err.Error()}, nil
	}
	// Templates of which the fleet has nothing (no subnet in their zones) say nothing about the launch.
	used := map[string]map[string]string{}
	for _, config := range ec2.fleet.LaunchTemplateConfigs {
		name := *config.LaunchTemplateSpecification.LaunchTemplateName
		used[name] = ec2.wire[name]
	}
	return Answer{Templates: slices.Collect(maps.Values(used)), Fleet: ec2.wireFleet}, nil
}

// DescribePlacementGroups knows every group; its id comes from its name.
func (r *recorder) DescribePlacementGroups(_ context.Context, input *ec2.DescribePlacementGroupsInput, _ ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error) {
	group := ec2types.PlacementGroup{State: ec2types.PlacementGroupStateAvailable, Strategy: ec2types.PlacementStrategyCluster}
	if len(input.GroupIds) > 0 {
		group.GroupId, group.GroupName = aws.String(input.GroupIds[0]), aws.String("named")
	}
	if len(input.GroupNames) > 0 {
		group.GroupId, group.GroupName = aws.String("pg-"+input.GroupNames[0]), aws.String(input.GroupNames[0])
	}
	return &ec2.DescribePlacementGroupsOutput{PlacementGroups: []ec2types.PlacementGroup{group}}, nil
}

// Tags come from maps: they are put in order, so that the requests can be compared.
func inOrder(tags []ec2types.Tag) {
	slices.SortFunc(tags, func(a, b ec2types.Tag) int { return strings.Compare(*a.Key, *b.Key) })
}

func templateOnTheWire(input *ec2.CreateLaunchTemplateInput) map[string]string {
	for _, each := range input.TagSpecifications {
		inOrder(each.Tags)
	}
	for _, each := range input.LaunchTemplateData.TagSpecifications {
		inOrder(each.Tags)
	}
	return onTheWire(func(client *ec2.Client) error {
		_, err := client.CreateLaunchTemplate(context.Background(), input)
		return err
	})
}

func fleetOnTheWire(input *ec2.CreateFleetInput) map[string]string {
	for _, each := range input.TagSpecifications {
		inOrder(each.Tags)
	}
	return onTheWire(func(client *ec2.Client) error {
		_, err := client.CreateFleet(context.Background(), input)
		return err
	})
}

var errNotSent = errors.New("not sent")

// onTheWire gives the parameters of the request that the SDK would send.
func onTheWire(call func(*ec2.Client) error) map[string]string {
	var parameters map[string]string
	client := ec2.New(ec2.Options{
		Region:           "us-east-1",
		Credentials:      aws.AnonymousCredentials{},
		RetryMaxAttempts: 1,
		HTTPClient: roundTripper(func(request *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return nil, err
			}
			values, err := url.ParseQuery(string(body))
			if err != nil {
				return nil, err
			}
			parameters = map[string]string{}
			for key := range values {
				parameters[key] = values.Get(key)
			}
			return nil, errNotSent
		}),
	})
	if err := call(client); !errors.Is(err, errNotSent) {
		panic(fmt.Sprintf("the SDK did not send the request: %v", err))
	}
	return parameters
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) Do(request *http.Request) (*http.Response, error) { return f(request) }
