// Package quantity asks k8s.io/apimachinery about amounts.
package quantity

import (
	"errors"
	"reflect"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/veneer-io/veneer/oracle/internal/batch"
)

// Case is one or two texts.
type Case struct {
	A string  `json:"a"`
	B *string `json:"b,omitempty"`
}

// Parsed is what became of one text.
type Parsed struct {
	// Fault says why the text was refused: form, number or suffix.
	Fault string `json:"fault,omitempty"`
	// Endless says that the original would compute for ever, so it was not asked.
	Endless bool `json:"endless,omitempty"`
	// Text is what the API server writes back; Canonical is the same without its memory of the input.
	Text      string `json:"text,omitempty"`
	Canonical string `json:"canonical,omitempty"`
	Negated   string `json:"negated,omitempty"`
	Value     int64  `json:"value"`
	Milli     int64  `json:"milli"`
	// Slow says that the amount is a big decimal, where rounding of negative values differs.
	Slow bool `json:"slow,omitempty"`
}

// Result holds both texts and, when both are amounts of a size that can be computed with, their arithmetic.
type Result struct {
	A     Parsed  `json:"a"`
	B     *Parsed `json:"b,omitempty"`
	Pair  bool    `json:"pair,omitempty"`
	Cmp   int     `json:"cmp"`
	Sum   string  `json:"sum,omitempty"`
	Minus string  `json:"minus,omitempty"`
}

// Verb answers cases.
var Verb = batch.Plain(answer)

// The widest power of ten that the original is asked to write out in full.
const maxExponent = 5000

func answer(in Case) (Result, error) {
	a, parsedA := parse(in.A)
	result := Result{A: parsedA}
	if in.B == nil {
		return result, nil
	}
	b, parsedB := parse(*in.B)
	result.B = &parsedB
	if a == nil || b == nil || !computable(*a) || !computable(*b) {
		return result, nil
	}
	result.Pair = true
	result.Cmp = a.Cmp(*b)
	sum := a.DeepCopy()
	sum.Add(*b)
	result.Sum = sum.String()
	minus := a.DeepCopy()
	minus.Sub(*b)
	result.Minus = minus.String()
	return result, nil
}

func parse(text string) (*resource.Quantity, Parsed) {
	if endless(text) {
		return nil, Parsed{Endless: true}
	}
	q, err := resource.ParseQuantity(text)
	switch {
	case errors.Is(err, resource.ErrFormatWrong):
		return nil, Parsed{Fault: "form"}
	case errors.Is(err, resource.ErrNumeric):
		return nil, Parsed{Fault: "number"}
	case errors.Is(err, resource.ErrSuffix):
		return nil, Parsed{Fault: "suffix"}
	case err != nil:
		return nil, Parsed{Fault: err.Error()}
	}
	slow, _ := insides(q)
	number, suffix := q.CanonicalizeBytes(nil)
	negated := q.DeepCopy()
	negated.Neg()
	parsed := Parsed{
		Text:      q.String(),
		Canonical: string(number) + string(suffix),
		Negated:   negated.String(),
		Slow:      slow,
	}
	// Of 0e2147483647 the original multiplies the zero two thousand million times.
	if computable(q) {
		parsed.Value, parsed.Milli = q.Value(), q.MilliValue()
	}
	return &q, parsed
}

var exponential = regexp.MustCompile(`^[+-]?0*([0-9]*)(?:\.([0-9]*))?[eE]([+-]?[0-9]+)$`)

// endless tells whether parsing would write out a power of ten with millions of digits.
func endless(text string) bool {
	match := exponential.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	exponent, err := strconv.ParseInt(match[3], 10, 64)
	if err != nil || (int32(exponent) <= maxExponent && int32(exponent) >= -maxExponent) {
		return false
	}
	scale := int32(exponent) - int32(len(match[2]))
	return max(len(match[1]), 1)+len(match[2]) > 18 || scale < -9
}

// insides reads the private fields that say how the amount is held.
func insides(q resource.Quantity) (slow bool, scale int64) {
	value := reflect.ValueOf(q)
	return !value.FieldByName("d").Field(0).IsNil(), value.FieldByName("i").FieldByName("scale").Int()
}

func computable(q resource.Quantity) bool {
	_, scale := insides(q)
	return scale <= maxExponent && scale >= -maxExponent
}
