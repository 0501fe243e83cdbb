/* Small arrays at NumPy's pace: what `small.py` says in Python, of the calls that scripts make most.
 *
 * `Held` is the base of SmallArray: an object that has one of NumPy's arrays or numbers. Its operators, elements and
 * views are NumPy's of what is held, and the result is held again. `Function` and `Method` do so with NumPy's functions
 * and methods. Only what is small and simple is done here: exact SmallArrays and numbers, whose result has few bytes at
 * most (`limits`); all else is left to the function in Python that was bound for it. So this file decides nothing, and
 * where it was not compiled Python answers everything.
 */
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <structmember.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

typedef struct {
    PyObject_HEAD
    PyObject *held, *constant, *weak;
} Held;

/* What `bind` was given. */
static PyTypeObject *small;     /* SmallArray */
static PyObject *numbers;       /* by NumPy's type of a number: the type of an element */
static PyTypeObject *float_element, *integer_element;
static PyObject *ours;          /* makes arrays of results that are not an array or a number */
static PyObject *slow;          /* by an operator's name: what Python does */
static PyObject *pending;       /* calls of chains that are not computed: writes must wait for them */
static npy_int64 *writes;       /* how often a small array was written to */
static npy_int64 *limits;       /* see below */
#define TINY limits[0]          /* elements: each of one array with each of another */
#define LARGE limits[1]         /* bytes of an array that is not small */
#define KEPT limits[2]          /* bytes from which operators write over what has no name; NumPy's does too, and takes
                                   what is held for such: no more than its 256 KiB */

/* ---------------------------------------------------------------------------------------------- what is given, made */

static inline int is_number(PyObject *x)
{
    return Py_TYPE(x) == &PyDoubleArrType_Type || PyFloat_CheckExact(x) || PyLong_CheckExact(x) || PyBool_Check(x) ||
           PyComplex_CheckExact(x) || PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool);
}

static inline int is_small(PyObject *x)
{
    return Py_TYPE(x) == small && small != NULL;
}

/* NumPy's array of a SmallArray, borrowed; NULL where it has none. */
static inline PyArrayObject *array_of(PyObject *x)
{
    PyObject *held = is_small(x) ? ((Held *)x)->held : NULL;
    return held != NULL && PyArray_CheckExact(held) ? (PyArrayObject *)held : NULL;
}

/* What NumPy takes in the place of an operand, borrowed; NULL: Python is to decide. */
static inline PyObject *operand(PyObject *x)
{
    return is_small(x) ? ((Held *)x)->held : PyArray_CheckExact(x) || is_number(x) ? x : NULL;
}

/* SmallArrays that went, for the next ones: a program makes and drops one with each operation. */
static PyObject *spares[64];
static int spare;

static PyObject *hold(PyObject *held)
{
    PyObject *made;
    if (spare) {
        made = spares[--spare];
        _Py_NewReference(made);
    } else if ((made = small->tp_alloc(small, 0)) == NULL) {
        Py_DECREF(held);
        return NULL;
    }
    ((Held *)made)->held = held;
    return made;
}

static void held_clear(PyObject *self)
{
    Held *own = (Held *)self;
    if (own->weak != NULL)
        PyObject_ClearWeakRefs(self);
    Py_CLEAR(own->held);
    Py_CLEAR(own->constant);
}

/* In the place of what a class of Python has; it holds nothing by which a cycle could lead back to it. */
static void small_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    held_clear(self);
    if (type == small && spare < (int)Py_ARRAY_LENGTH(spares)) {
        spares[spare++] = self;
        return;
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* An object that holds what NumPy returned; takes over the reference. before: arguments of which it may be one. */
static PyObject *holding(PyObject *result, PyObject *const *before, Py_ssize_t count)
{
    int array;
    if (result == NULL)
        return NULL;
    array = PyArray_CheckExact(result);
    if (array) {
        int type = PyArray_TYPE((PyArrayObject *)result);
        array = type != NPY_OBJECT && type != NPY_LONGDOUBLE && type != NPY_CLONGDOUBLE &&
                PyArray_ISNBO(PyArray_DESCR((PyArrayObject *)result)->byteorder);
        for (Py_ssize_t i = 0; array && i < count; i++)
            if (is_small(before[i]) && ((Held *)before[i])->held == result) {
                ++*writes; /* it may have been `out` */
                Py_DECREF(result);
                return Py_NewRef(before[i]);
            }
    }
    if (array || Py_TYPE(result) == &PyDoubleArrType_Type || PyArray_IsScalar(result, Bool) ||
        (PyArray_IsScalar(result, Number) && !PyArray_IsScalar(result, LongDouble) &&
         !PyArray_IsScalar(result, CLongDouble)))
        return hold(result);
    PyObject *items = PyTuple_New(count), *made = NULL;
    for (Py_ssize_t i = 0; items != NULL && i < count; i++)
        PyTuple_SET_ITEM(items, i, Py_NewRef(before[i]));
    if (items != NULL)
        made = PyObject_CallFunctionObjArgs(ours, result, items, NULL);
    Py_XDECREF(items);
    Py_DECREF(result);
    return made;
}

/* An element as a number of its own type; takes over the reference. */
static PyObject *element(PyObject *part)
{
    PyObject *type = part == NULL ? NULL : PyDict_GetItemWithError(numbers, (PyObject *)Py_TYPE(part));
    if (type == NULL)
        return part;
    PyObject *made = PyObject_CallOneArg(type, part);
    Py_DECREF(part);
    return made;
}

static PyObject *in_python(const char *name, PyObject *const *items, Py_ssize_t count)
{
    PyObject *function = PyDict_GetItemString(slow, name);
    if (function == NULL)
        return PyErr_Format(PyExc_SystemError, "small arrays have no %s", name);
    return PyObject_Vectorcall(function, items, count, NULL);
}

/* ---------------------------------------------------------------------------------------------- operators */

/* Is what is made of two operands, element by element or each with each, of few bytes? */
static inline int few(PyObject *x, PyObject *y)
{
    PyArrayObject *a = PyArray_CheckExact(x) ? (PyArrayObject *)x : NULL;
    PyArrayObject *b = PyArray_CheckExact(y) ? (PyArrayObject *)y : NULL;
    if ((a != NULL && PyArray_NBYTES(a) >= KEPT) || (b != NULL && PyArray_NBYTES(b) >= KEPT))
        return 0;
    if (a == NULL || b == NULL)
        return KEPT > 0;
    if (PyArray_SIZE(a) * PyArray_SIZE(b) <= TINY)
        return 1;
    return PyArray_NDIM(a) == PyArray_NDIM(b) &&
           PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a));
}

/* Is a product of vectors and matrices small, as its operands are? */
static inline int product_fits(PyObject *x, PyObject *y)
{
    PyArrayObject *a = (PyArrayObject *)x, *b = (PyArrayObject *)y;
    if (!PyArray_CheckExact(x) || !PyArray_CheckExact(y) || PyArray_NBYTES(a) >= LARGE || PyArray_NBYTES(b) >= LARGE)
        return 0;
    int ranks = PyArray_NDIM(a) * 4 + PyArray_NDIM(b);
    npy_intp rows = PyArray_NDIM(a) == 2 ? PyArray_DIM(a, 0) : 1;
    npy_intp columns = PyArray_NDIM(b) == 2 ? PyArray_DIM(b, 1) : 1;
    return (ranks == 5 || ranks == 6 || ranks == 9 || ranks == 10) && rows * columns < LARGE / 16;
}

static PyObject *binary(PyObject *a, PyObject *b, binaryfunc function, const char *name, const char *reflected)
{
    PyObject *x = operand(a), *y = operand(b);
    if (x != NULL && y != NULL && (few(x, y) || (function == PyNumber_MatrixMultiply && product_fits(x, y))))
        return holding(function(x, y), NULL, 0);
    PyObject *forwards[] = {a, b}, *backwards[] = {b, a};
    if (small != NULL && PyObject_TypeCheck(a, small))
        return in_python(name, forwards, 2);
    return in_python(reflected, backwards, 2);
}

static PyObject *in_place(PyObject *a, PyObject *b, binaryfunc function, const char *name)
{
    PyArrayObject *x = array_of(a);
    PyObject *y = operand(b), *items[] = {a, b};
    if (x == NULL || y == NULL || PyDict_GET_SIZE(pending))
        return in_python(name, items, 2);
    ++*writes;
    PyObject *result = function((PyObject *)x, y);
    if (result != (PyObject *)x)
        return holding(result, NULL, 0);
    Py_DECREF(result);
    return Py_NewRef(a);
}

static PyObject *unary(PyObject *a, unaryfunc function, const char *name)
{
    PyObject *x = operand(a);
    if (x != NULL && (!PyArray_CheckExact(x) || PyArray_NBYTES((PyArrayObject *)x) < KEPT))
        return holding(function(x), NULL, 0);
    return in_python(name, &a, 1);
}

static PyObject *power(PyObject *x, PyObject *y) { return PyNumber_Power(x, y, Py_None); }
static PyObject *power_in_place(PyObject *x, PyObject *y) { return PyNumber_InPlacePower(x, y, Py_None); }

#define BINARY(name, function) \
    static PyObject *do_##name(PyObject *a, PyObject *b) \
    { \
        return binary(a, b, function, "__" #name "__", "__r" #name "__"); \
    }
#define BOTH(name, function, writing) \
    BINARY(name, function) \
    static PyObject *write_##name(PyObject *a, PyObject *b) { return in_place(a, b, writing, "__i" #name "__"); }
#define UNARY(name, function) \
    static PyObject *do_##name(PyObject *a) { return unary(a, function, "__" #name "__"); }

BOTH(add, PyNumber_Add, PyNumber_InPlaceAdd)
BOTH(sub, PyNumber_Subtract, PyNumber_InPlaceSubtract)
BOTH(mul, PyNumber_Multiply, PyNumber_InPlaceMultiply)
BOTH(truediv, PyNumber_TrueDivide, PyNumber_InPlaceTrueDivide)
BOTH(floordiv, PyNumber_FloorDivide, PyNumber_InPlaceFloorDivide)
BOTH(mod, PyNumber_Remainder, PyNumber_InPlaceRemainder)
BOTH(matmul, PyNumber_MatrixMultiply, PyNumber_InPlaceMatrixMultiply)
BOTH(and, PyNumber_And, PyNumber_InPlaceAnd)
BOTH(or, PyNumber_Or, PyNumber_InPlaceOr)
BOTH(xor, PyNumber_Xor, PyNumber_InPlaceXor)
BOTH(lshift, PyNumber_Lshift, PyNumber_InPlaceLshift)
BOTH(rshift, PyNumber_Rshift, PyNumber_InPlaceRshift)
BOTH(pow, power, power_in_place)
BINARY(divmod, PyNumber_Divmod)
UNARY(neg, PyNumber_Negative)
UNARY(pos, PyNumber_Positive)
UNARY(abs, PyNumber_Absolute)
UNARY(invert, PyNumber_Invert)

/* Python gives three operands to x ** y; NumPy has no third. */
static PyObject *do_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    return do_pow(a, b);
}

static PyObject *write_power(PyObject *a, PyObject *b, PyObject *modulus) { return write_pow(a, b); }

static PyObject *compare(PyObject *a, PyObject *b, int how)
{
    static const char *const names[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
    PyObject *x = operand(a), *y = operand(b), *items[] = {a, b};
    if (x != NULL && y != NULL && few(x, y))
        return holding(PyObject_RichCompare(x, y, how), NULL, 0);
    return in_python(names[how], items, 2);
}

static PyObject *as_float(PyObject *a)
{
    PyObject *x = operand(a);
    if (x != NULL && PyArray_IsScalar(x, Double))
        return PyFloat_FromDouble(PyArrayScalar_VAL(x, Double));
    return in_python("__float__", &a, 1);
}

static int as_bool(PyObject *a)
{
    PyObject *x = operand(a), *truth;
    if (x != NULL && PyArray_IsScalar(x, Bool))
        return x == PyArrayScalar_True;
    truth = in_python("__bool__", &a, 1);
    int is_true = truth == NULL ? -1 : truth == Py_True;
    Py_XDECREF(truth);
    return is_true;
}

static PyNumberMethods as_number = {
    .nb_add = do_add, .nb_subtract = do_sub, .nb_multiply = do_mul, .nb_true_divide = do_truediv,
    .nb_floor_divide = do_floordiv, .nb_remainder = do_mod, .nb_matrix_multiply = do_matmul, .nb_power = do_power,
    .nb_and = do_and, .nb_or = do_or, .nb_xor = do_xor, .nb_lshift = do_lshift, .nb_rshift = do_rshift,
    .nb_divmod = do_divmod, .nb_negative = do_neg, .nb_positive = do_pos, .nb_absolute = do_abs,
    .nb_invert = do_invert, .nb_float = as_float, .nb_bool = as_bool,
    .nb_inplace_add = write_add, .nb_inplace_subtract = write_sub, .nb_inplace_multiply = write_mul,
    .nb_inplace_true_divide = write_truediv, .nb_inplace_floor_divide = write_floordiv,
    .nb_inplace_remainder = write_mod, .nb_inplace_matrix_multiply = write_matmul, .nb_inplace_power = write_power,
    .nb_inplace_and = write_and, .nb_inplace_or = write_or, .nb_inplace_xor = write_xor,
    .nb_inplace_lshift = write_lshift, .nb_inplace_rshift = write_rshift,
};

/* ---------------------------------------------------------------------------------------------- elements and views */

/* Does an index choose what is a view, or an element? */
static inline int is_place(PyObject *key)
{
    return PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_None || key == Py_Ellipsis ||
           PyArray_IsScalar(key, Integer);
}

/* What NumPy takes in the place of an index, borrowed; NULL: Python is to decide. */
static PyObject *place(PyArrayObject *x, PyObject *key)
{
    PyArrayObject *picks;
    if (is_place(key))
        return key;
    if (PyTuple_CheckExact(key)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
            if (!is_place(PyTuple_GET_ITEM(key, i)))
                return NULL;
        return key;
    }
    if (!is_small(key) && !PyArray_CheckExact(key))
        return NULL;
    if ((picks = is_small(key) ? array_of(key) : (PyArrayObject *)key) == NULL)
        return PyArray_IsScalar(((Held *)key)->held, Integer) ? ((Held *)key)->held : NULL;
    if (PyArray_TYPE(picks) == NPY_BOOL)
        return (PyObject *)picks;
    return PyArray_ISINTEGER(picks) && PyArray_SIZE(picks) * PyArray_NBYTES(x) < KEPT ? (PyObject *)picks : NULL;
}

/* The element at an address. */
static PyObject *element_at(PyArrayObject *x, char *at)
{
    int type = PyArray_TYPE(x);
    if (PyArray_ISBEHAVED_RO(x) && type == NPY_DOUBLE) {
        PyObject *made = float_element->tp_alloc(float_element, 0);
        if (made != NULL)
            PyArrayScalar_ASSIGN(made, Double, *(npy_double *)at);
        return made;
    }
    if (PyArray_ISBEHAVED_RO(x) && type == NPY_LONG) {
        PyObject *made = integer_element->tp_alloc(integer_element, 0);
        if (made != NULL)
            PyArrayScalar_ASSIGN(made, Long, *(npy_long *)at);
        return made;
    }
    return element(PyArray_Scalar(at, PyArray_DESCR(x), (PyObject *)x));
}

/* The address behind `at` along an axis, NULL where the index is not there. */
static inline char *step(PyArrayObject *x, char *at, int axis, PyObject *key)
{
    Py_ssize_t i = PyLong_AsSsize_t(key), extent = PyArray_DIM(x, axis);
    if (i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    i += i < 0 ? extent : 0;
    return i < 0 || i >= extent ? NULL : at + i * PyArray_STRIDE(x, axis);
}

/* What whole numbers and slices choose of an array, in NumPy's words. */
typedef struct {
    char *data;
    int rank;
    npy_intp shape[4], strides[4];
} Part;

/* False where something else chooses, an element is chosen, or NumPy would refuse it. */
static int part_of(PyArrayObject *x, PyObject *key, Part *part)
{
    PyObject *const *keys = PyTuple_CheckExact(key) ? &PyTuple_GET_ITEM(key, 0) : &key;
    Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1;
    if (PyArray_NDIM(x) > (int)Py_ARRAY_LENGTH(part->shape) || count > PyArray_NDIM(x))
        return 0;
    part->data = PyArray_BYTES(x);
    part->rank = 0;
    for (int axis = 0; axis < PyArray_NDIM(x); axis++) {
        Py_ssize_t start, stop, stride = 1, extent = PyArray_DIM(x, axis);
        if (axis < count && PyLong_CheckExact(keys[axis])) {
            if ((part->data = step(x, part->data, axis, keys[axis])) == NULL)
                return 0;
            continue;
        }
        if (axis < count) {
            if (!PySlice_Check(keys[axis]) || PySlice_Unpack(keys[axis], &start, &stop, &stride) < 0) {
                PyErr_Clear(); /* NumPy says it again */
                return 0;
            }
            extent = PySlice_AdjustIndices(extent, &start, &stop, stride);
            if (extent == 0)
                start = 0, stride = 1;
            part->data += start * PyArray_STRIDE(x, axis);
        }
        part->shape[part->rank] = extent;
        part->strides[part->rank++] = stride * PyArray_STRIDE(x, axis);
    }
    return part->rank > 0;
}

/* The part as an array of NumPy's. */
static PyObject *view_of(PyArrayObject *x, Part *part)
{
    PyArray_Descr *descr = (PyArray_Descr *)Py_NewRef(PyArray_DESCR(x));
    PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, part->rank, part->shape, part->strides, part->data,
                                          PyArray_FLAGS(x), NULL);
    if (made != NULL && PyArray_SetBaseObject((PyArrayObject *)made, Py_NewRef(x)) < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *get(PyObject *self, PyObject *key)
{
    PyArrayObject *x = array_of(self);
    PyObject *where, *part, *items[] = {self, key};
    Part chosen;
    if (x == NULL)
        return in_python("__getitem__", items, 2);
    if (PyLong_CheckExact(key) && PyArray_NDIM(x) == 1) {
        char *at = step(x, PyArray_BYTES(x), 0, key);
        if (at != NULL)
            return element_at(x, at);
    }
    if (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2 && PyArray_NDIM(x) == 2) {
        PyObject *row = PyTuple_GET_ITEM(key, 0), *column = PyTuple_GET_ITEM(key, 1);
        if (PyLong_CheckExact(row) && PyLong_CheckExact(column)) {
            char *at = step(x, PyArray_BYTES(x), 0, row);
            if (at != NULL && (at = step(x, at, 1, column)) != NULL)
                return element_at(x, at);
        }
    }
    if (part_of(x, key, &chosen))
        return (part = view_of(x, &chosen)) == NULL ? NULL : hold(part);
    if ((where = place(x, key)) == NULL)
        return in_python("__getitem__", items, 2);
    part = PyObject_GetItem((PyObject *)x, where);
    return part != NULL && PyArray_CheckExact(part) ? holding(part, NULL, 0) : element(part);
}

/* Does y show this part of x, each element at its place? x[key] += y writes, and then sets what it wrote. */
static int shows(PyArrayObject *y, PyArrayObject *x, Part *part)
{
    return PyArray_BYTES(y) == part->data && PyArray_NDIM(y) == part->rank && PyArray_DESCR(x) == PyArray_DESCR(y) &&
           PyArray_CompareLists(PyArray_DIMS(y), part->shape, part->rank) &&
           PyArray_CompareLists(PyArray_STRIDES(y), part->strides, part->rank);
}

/* Does y show a part of what x shows a part of? */
static inline int is_view(PyObject *y, PyArrayObject *x)
{
    PyObject *base = PyArray_CheckExact(y) ? PyArray_BASE((PyArrayObject *)y) : NULL;
    return base != NULL && (base == (PyObject *)x || base == PyArray_BASE(x));
}

static int set(PyObject *self, PyObject *key, PyObject *value)
{
    PyArrayObject *x = array_of(self);
    PyObject *where, *what, *done, *items[] = {self, key, value};
    Part chosen;
    if (value == NULL) {
        PyErr_SetString(PyExc_ValueError, "cannot delete array elements");
        return -1;
    }
    what = operand(value);
    if (x != NULL && what != NULL && !PyDict_GET_SIZE(pending) && (where = place(x, key)) != NULL) {
        ++*writes;
        if (is_view(what, x) && PyArray_ISWRITEABLE(x) && part_of(x, key, &chosen) &&
            shows((PyArrayObject *)what, x, &chosen))
            return 0;
        return PyObject_SetItem((PyObject *)x, where, what);
    }
    done = in_python("__setitem__", items, 3);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static Py_ssize_t length(PyObject *self)
{
    PyArrayObject *x = array_of(self);
    if (x != NULL && PyArray_NDIM(x))
        return PyArray_DIM(x, 0);
    PyErr_SetString(PyExc_TypeError, "len() of unsized object");
    return -1;
}

/* The elements of an array with one dimension, one after the other. */
typedef struct {
    PyObject_HEAD
    PyArrayObject *array;
    npy_intp next;
} Elements;

static PyObject *next_element(PyObject *self)
{
    Elements *own = (Elements *)self;
    if (PyArray_NDIM(own->array) != 1 || own->next >= PyArray_DIM(own->array, 0)) /* a program may reshape it */
        return NULL;
    return element_at(own->array, PyArray_BYTES(own->array) + own->next++ * PyArray_STRIDE(own->array, 0));
}

static void elements_dealloc(PyObject *self)
{
    Py_DECREF(((Elements *)self)->array);
    PyObject_Free(self);
}

static PyTypeObject ElementsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "girih.array.Elements",
    .tp_basicsize = sizeof(Elements),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = elements_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = next_element,
};

static PyObject *iterate(PyObject *self)
{
    PyArrayObject *x = array_of(self);
    Elements *made;
    if (x == NULL || PyArray_NDIM(x) != 1)
        return in_python("__iter__", &self, 1);
    if ((made = PyObject_New(Elements, &ElementsType)) != NULL) {
        made->array = (PyArrayObject *)Py_NewRef(x);
        made->next = 0;
    }
    return (PyObject *)made;
}

static PyMappingMethods as_mapping = {.mp_length = length, .mp_subscript = get, .mp_ass_subscript = set};
static PySequenceMethods as_sequence = {.sq_length = length};

/* ---------------------------------------------------------------------------------------------- attributes */

static PyObject *get_attribute(PyObject *self, void *name)
{
    PyObject *own = ((Held *)self)->held, *held = is_small(self) && own != NULL ? Py_NewRef(own) : NULL;
    if (held == NULL)
        held = PyObject_GetAttrString(self, "held");
    PyObject *value = held == NULL ? NULL : PyObject_GetAttrString(held, name);
    Py_XDECREF(held);
    return value;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    PyArrayObject *x = array_of(self);
    return x == NULL ? get_attribute(self, "shape") : PyArray_IntTupleFromIntp(PyArray_NDIM(x), PyArray_DIMS(x));
}

static int set_shape(PyObject *self, PyObject *value, void *unused)
{
    PyObject *held = PyObject_GetAttrString(self, "held");
    int done = held == NULL ? -1 : PyObject_SetAttrString(held, "shape", value);
    Py_XDECREF(held);
    return done;
}

static PyObject *get_view(PyObject *self, void *name) { return holding(get_attribute(self, name), NULL, 0); }

static PyGetSetDef attributes[] = {
    {"shape", get_shape, set_shape, NULL, NULL}, {"dtype", get_attribute, NULL, NULL, "dtype"},
    {"ndim", get_attribute, NULL, NULL, "ndim"}, {"size", get_attribute, NULL, NULL, "size"},
    {"nbytes", get_attribute, NULL, NULL, "nbytes"}, {"itemsize", get_attribute, NULL, NULL, "itemsize"},
    {"T", get_view, NULL, NULL, "T"}, {NULL},
};

static PyMemberDef members[] = {
    {"held", T_OBJECT_EX, offsetof(Held, held), 0, NULL}, {"_constant", T_OBJECT_EX, offsetof(Held, constant), 0, NULL},
    {NULL},
};

/* NumPy asks: its universal function has a small array among its operands. */
static PyObject *array_ufunc(PyObject *self, PyObject *const *items, Py_ssize_t count, PyObject *names)
{
    PyObject *given[3], *x = NULL;
    if (names == NULL && count >= 3 && count <= 5 && PyUnicode_Check(items[1]) &&
        PyUnicode_CompareWithASCIIString(items[1], "__call__") == 0) {
        Py_ssize_t i;
        for (i = 2; i < count; i++) {
            if ((given[i - 2] = operand(items[i])) == NULL || (x != NULL && !few(x, given[i - 2])))
                break;
            x = given[i - 2];
        }
        if (i == count && count <= 4 && few(given[0], given[count - 3]))
            return holding(PyObject_Vectorcall(items[0], given, count - 2, NULL), items + 2, count - 2);
    }
    PyObject *function = PyDict_GetItemString(slow, "__array_ufunc__"), *all[8], *result;
    if (count + (names == NULL ? 0 : PyTuple_GET_SIZE(names)) <= 7) {
        all[0] = self;
        memcpy(all + 1, items, sizeof(*items) * (count + (names == NULL ? 0 : PyTuple_GET_SIZE(names))));
        return PyObject_Vectorcall(function, all, count + 1, names);
    }
    PyObject *bound = PyMethod_New(function, self);
    result = bound == NULL ? NULL : PyObject_Vectorcall(bound, items, count, names);
    Py_XDECREF(bound);
    return result;
}

static PyMethodDef methods[] = {
    {"__array_ufunc__", (PyCFunction)(void (*)(void))array_ufunc, METH_FASTCALL | METH_KEYWORDS, NULL}, {NULL},
};

static void held_dealloc(PyObject *self)
{
    held_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject HeldType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "girih.array.Held",
    .tp_basicsize = sizeof(Held),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_dealloc = held_dealloc,
    .tp_weaklistoffset = offsetof(Held, weak),
    .tp_as_number = &as_number,
    .tp_as_mapping = &as_mapping,
    .tp_as_sequence = &as_sequence,
    .tp_richcompare = compare,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_iter = iterate,
    .tp_members = members,
    .tp_getset = attributes,
    .tp_methods = methods,
};

/* ---------------------------------------------------------------------------------------------- functions */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *numpys, *slow, *dict, *weak;
    int rule;
    Py_ssize_t operands; /* of a universal function; else -1 */
} Function;

/* Rules: how much a function makes of its arguments. A number of each element with each, at most; but where they have
 * one shape, no more than one of them has (ALIKE; of BRIEF, which may wait in a chain, only below KEPT). What numbers
 * say: a shape, rows and columns, a range. */
enum { ALIKE, BRIEF, PAIRS, SHAPE, SQUARE, RANGE };
#define MOST 8

/* The options of functions that say nothing of arrays. */
static int is_option(PyObject *name)
{
    static const char *const names[] = {"axis", "dtype", "keepdims", "ddof"};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return 1;
    return 0;
}

static int is_setting(PyObject *x)
{
    if (x == Py_None || PyType_Check(x) || PyArray_DescrCheck(x) || is_number(x))
        return 1;
    if (!PyTuple_CheckExact(x))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++)
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(x, i)) && PyTuple_GET_ITEM(x, i) != Py_None)
            return 0;
    return 1;
}

/* The list that NumPy is given for a list of numbers, small arrays and such lists: a new reference. Counts elements;
 * NULL without an error: Python is to decide. */
static PyObject *listed(PyObject *list, npy_int64 *size, int depth)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    PyObject *made = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = PyList_GET_ITEM(list, i), *plain;
        if (PyList_CheckExact(x)) {
            if (depth > 4 || (plain = listed(x, size, depth + 1)) == NULL)
                goto other;
        } else if (PyArray_CheckExact(x) || (plain = Py_XNewRef(operand(x))) == NULL) {
            goto other;
        } else {
            *size += PyArray_CheckExact(plain) ? PyArray_SIZE((PyArrayObject *)plain) : 1;
        }
        if (plain != x && made == NULL && (made = PyList_GetSlice(list, 0, count)) == NULL) {
            Py_DECREF(plain);
            return NULL;
        }
        if (made == NULL)
            Py_DECREF(plain);
        else
            PyList_SetItem(made, i, plain);
    }
    return made == NULL ? Py_NewRef(list) : made;
other:
    Py_XDECREF(made);
    return NULL;
}

/* How many elements arguments that are whole numbers ask for; more than all limits where they are something else. */
static npy_int64 asked(int rule, PyObject *const *items, Py_ssize_t count)
{
    const npy_int64 unknown = NPY_MAX_INT64;
    npy_int64 size = 1, first = 1;
    if (count < 1)
        return unknown;
    if (rule == SHAPE && PyTuple_CheckExact(items[0])) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items[0]); i++) {
            PyObject *extent = PyTuple_GET_ITEM(items[0], i);
            int over = 0;
            long one = PyLong_CheckExact(extent) ? PyLong_AsLongAndOverflow(extent, &over) : -1;
            if (one < 0 || over || one > (1 << 24) || (size *= one ? one : 1) > (1 << 24))
                return unknown;
        }
        return size;
    }
    for (Py_ssize_t i = 0; i < count && (rule != SHAPE || i < 1) && (rule != SQUARE || i < 2); i++) {
        int over = 0;
        long one;
        if (items[i] == Py_None && i > 0)
            continue;
        if (!PyLong_CheckExact(items[i]))
            return unknown;
        one = PyLong_AsLongAndOverflow(items[i], &over);
        if (over || one > (1 << 24) || one < (rule == RANGE ? -(1 << 24) : 0))
            return unknown;
        first = i ? first : one + 1;
        size = rule == RANGE ? size + labs(one) : size * (one + 1);
    }
    return rule == SQUARE && (count < 2 || items[1] == Py_None) ? first * first : size;
}

static PyObject *answer(PyObject *callable, PyObject *const *items, size_t flags, PyObject *names)
{
    Function *self = (Function *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags), options = names == NULL ? 0 : PyTuple_GET_SIZE(names), lists = 0;
    PyObject *given[MOST], *lent[MOST], *result = NULL;
    PyArrayObject *first = NULL;
    npy_int64 size = 1;
    int alike = 1, method = PyType_HasFeature(Py_TYPE(self), Py_TPFLAGS_METHOD_DESCRIPTOR);
    if (count + options > MOST || count < 1 || TINY <= 0 || (method && array_of(items[0]) == NULL))
        goto python;
    if (self->operands >= 0 ? count != self->operands || options : PyDict_GET_SIZE(pending) && count > 1)
        goto python;
    for (Py_ssize_t i = count; i < count + options; i++) {
        if (!is_setting(items[i]) || !is_option(PyTuple_GET_ITEM(names, i - count)))
            goto python;
        given[i] = items[i];
    }
    if (self->rule >= SHAPE && asked(self->rule, items, count) > TINY)
        goto python;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = items[i];
        if (is_small(x)) {
            PyArrayObject *array = array_of(x);
            given[i] = ((Held *)x)->held;
            if (array == NULL)
                continue;
            npy_int64 extent = PyArray_SIZE(array);
            if (extent > 1 && __builtin_mul_overflow(size, extent, &size))
                goto python;
            if (first == NULL)
                first = array;
            else
                alike = alike && PyArray_NDIM(first) == PyArray_NDIM(array) &&
                        PyArray_CompareLists(PyArray_DIMS(first), PyArray_DIMS(array), PyArray_NDIM(array));
            alike = alike && PyArray_NBYTES(array) < LARGE;
        } else if (PyList_CheckExact(x) && self->operands < 0) {
            npy_int64 extent = 0;
            if ((given[i] = lent[lists] = listed(x, &extent, 0)) == NULL) {
                if (PyErr_Occurred())
                    goto failed;
                goto python;
            }
            lists++;
            alike = 0;
            if (extent > 1 && __builtin_mul_overflow(size, extent, &size))
                goto python;
        } else if (self->operands < 0 ? is_setting(x) : is_number(x)) {
            given[i] = x;
        } else {
            goto python;
        }
    }
    if (size > TINY && !(alike && self->rule <= BRIEF))
        goto python;
    if (self->rule == BRIEF && first != NULL && PyArray_NBYTES(first) >= KEPT)
        goto python;
    result = PyObject_Vectorcall(self->numpys, given, count, names);
    while (lists)
        Py_DECREF(lent[--lists]);
    if (result != NULL)
        return holding(result, items, count);
    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return NULL;
    PyErr_Clear(); /* which of the two refuses it Python is to say */
python:
    while (lists)
        Py_DECREF(lent[--lists]);
    return PyObject_Vectorcall(self->slow, items, flags, names);
failed:
    while (lists)
        Py_DECREF(lent[--lists]);
    return NULL;
}

static PyObject *function_new(PyTypeObject *type, PyObject *items, PyObject *options)
{
    Function *made = (Function *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->vectorcall = answer;
        made->numpys = Py_NewRef(Py_None);
        made->slow = Py_NewRef(Py_None);
    }
    return (PyObject *)made;
}

static int function_init(PyObject *self, PyObject *items, PyObject *options)
{
    Function *own = (Function *)self;
    static char *names[] = {"numpys", "slow", "rule", "operands", NULL};
    PyObject *numpys, *python;
    own->operands = -1;
    if (!PyArg_ParseTupleAndKeywords(items, options, "OOi|n", names, &numpys, &python, &own->rule, &own->operands))
        return -1;
    Py_XSETREF(own->numpys, Py_NewRef(numpys));
    Py_XSETREF(own->slow, Py_NewRef(python));
    return 0;
}

static int function_traverse(PyObject *self, visitproc visit, void *arg)
{
    Function *own = (Function *)self;
    Py_VISIT(own->numpys);
    Py_VISIT(own->slow);
    Py_VISIT(own->dict);
    return 0;
}

static int function_clear(PyObject *self)
{
    Function *own = (Function *)self;
    Py_CLEAR(own->numpys);
    Py_CLEAR(own->slow);
    Py_CLEAR(own->dict);
    return 0;
}

static void function_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((Function *)self)->weak != NULL)
        PyObject_ClearWeakRefs(self);
    function_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* Pickled is where it is found: `found` of the instance says so. */
static PyObject *reduce(PyObject *self, PyObject *unused) { return PyObject_GetAttrString(self, "found"); }

static PyObject *shown(PyObject *self)
{
    PyObject *name = PyObject_GetAttrString(self, "__name__");
    PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<girih function %S>", name);
    Py_XDECREF(name);
    return text;
}

static PyObject *bind_method(PyObject *self, PyObject *instance, PyObject *type)
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static PyMemberDef function_members[] = {{"in_python", T_OBJECT, offsetof(Function, slow), READONLY, NULL}, {NULL}};
static PyMethodDef function_methods[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL}};
static PyGetSetDef function_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL},
};

#define FUNCTION(name, more) { \
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "girih.array." name, \
    .tp_basicsize = sizeof(Function), \
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | more, \
    .tp_new = function_new, \
    .tp_init = function_init, \
    .tp_dealloc = function_dealloc, \
    .tp_traverse = function_traverse, \
    .tp_clear = function_clear, \
    .tp_repr = shown, \
    .tp_call = PyVectorcall_Call, \
    .tp_vectorcall_offset = offsetof(Function, vectorcall), \
    .tp_dictoffset = offsetof(Function, dict), \
    .tp_weaklistoffset = offsetof(Function, weak), \
    .tp_methods = function_methods, \
    .tp_members = function_members, \
    .tp_getset = function_attributes, \
}

static PyTypeObject FunctionType = FUNCTION("Function", 0);
static PyTypeObject MethodType = FUNCTION("Method", Py_TPFLAGS_METHOD_DESCRIPTOR);

/* ---------------------------------------------------------------------------------------------- the module */

/* bind(type, numbers, ours, slow, pending, writes, limits): before there is any SmallArray. */
static PyObject *bind(PyObject *module, PyObject *items)
{
    PyObject *counted, *borders;
    if (!PyArg_ParseTuple(items, "O!O!OO!O!O!O!", &PyType_Type, &small, &PyDict_Type, &numbers, &ours, &PyDict_Type,
                          &slow, &PyDict_Type, &pending, &PyArray_Type, &counted, &PyArray_Type, &borders))
        return NULL;
    for (int i = 0; i < 7; i++)
        Py_INCREF(PyTuple_GET_ITEM(items, i)); /* for as long as the process lives */
    small->tp_dealloc = small_dealloc;
    writes = PyArray_DATA((PyArrayObject *)counted);
    limits = PyArray_DATA((PyArrayObject *)borders);
    float_element = (PyTypeObject *)PyDict_GetItem(numbers, (PyObject *)&PyDoubleArrType_Type);
    integer_element = (PyTypeObject *)PyDict_GetItem(numbers, (PyObject *)&PyLongArrType_Type);
    if (float_element == NULL || integer_element == NULL) {
        PyErr_SetString(PyExc_ValueError, "numbers: there is no float64, or no int64");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"bind", bind, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "small", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_small(void)
{
    PyObject *module;
    import_array();
    MethodType.tp_descr_get = bind_method;
    HeldType.tp_new = PyBaseObject_Type.tp_new; /* as classes of Python have it */
    if (PyType_Ready(&HeldType) < 0 || PyType_Ready(&ElementsType) < 0 || PyType_Ready(&FunctionType) < 0 ||
        PyType_Ready(&MethodType) < 0)
        return NULL;
    if ((module = PyModule_Create(&definition)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(module, "Held", (PyObject *)&HeldType) < 0 ||
        PyModule_AddObjectRef(module, "Function", (PyObject *)&FunctionType) < 0 ||
        PyModule_AddObjectRef(module, "Method", (PyObject *)&MethodType) < 0)
        return NULL;
    return module;
}
