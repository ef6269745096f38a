package overlay

import (
	"context"
	"encoding/json"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"k8s.io/apimachinery/pkg/util/sets"
)

// A catalogue is a list of instance types and the labels that loading it made well known.
type catalogue struct {
	types     []*cloudprovider.InstanceType
	wellKnown sets.Set[string]
}

// Catalogues are read once per path. The KWOK provider adds the labels of offerings to Karpenter's global set of
// well-known labels; that set is put back for each catalogue, so that cases do not see each other's labels.
type catalogues struct {
	base   sets.Set[string]
	loaded map[string]*catalogue
}

func newCatalogues() *catalogues {
	return &catalogues{base: v1.WellKnownLabels.Clone(), loaded: map[string]*catalogue{}}
}

func (c *catalogues) get(path string) (*catalogue, error) {
	found, ok := c.loaded[path]
	if !ok {
		loaded, err := c.load(path)
		if err != nil {
			return nil, err
		}
		found, c.loaded[path] = loaded, loaded
	}
	v1.WellKnownLabels = found.wellKnown
	return found, nil
}

func (c *catalogues) load(path string) (*catalogue, error) {
	v1.WellKnownLabels = c.base.Clone()
	ctx := options.ToContext(context.Background(), &options.Options{InstanceTypesFilePath: path})
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return nil, err
	}
	return &catalogue{types: instanceTypes, wellKnown: v1.WellKnownLabels}, nil
}

// choose takes the catalogue of a case: a path, the list itself, or the default.
func (c *catalogues) choose(raw json.RawMessage, fallback string) (*catalogue, error) {
	var path string
	if len(raw) == 0 || string(raw) == "null" {
		return c.get(fallback)
	}
	if json.Unmarshal(raw, &path) == nil {
		return c.get(path)
	}
	// The provider reads files only.
	file, err := os.CreateTemp("", "catalogue-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(raw); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	loaded, err := c.load(file.Name())
	if err == nil {
		v1.WellKnownLabels = loaded.wellKnown
	}
	return loaded, err
}
