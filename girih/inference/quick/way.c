/* The quick way of a call as `way.py` has it in Python, for calls by position: are the words of memory as they were, is
 * nothing set around the caller, is the call one for which something was made? Then that is run; all else is left to a
 * function in Python. A model's own kernels have driven out of the caches what is read here, so what a call costs are
 * lines of memory that have to be fetched: those with words are asked for ahead of their turn, and nothing is made of
 * what they say.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#define AHEAD 128 /* words: as many lines as a processor fetches at a time */
#define WORD(place) ((const uint64_t *)(sizeof(uint64_t) * ((uintptr_t)(place) + 1))) /* as in `words.py` */

/* What is kept of Python; DEFAULT to MODES may be None, and either MADE or RUN is. KEPT: the objects whose words are read.
 */
enum { KEPT, OTHERWISE, GRADIENTS, SET_GRADIENTS, REST, DEFAULT, DTYPE, AUTOCAST, MODES, MADE, RUN, ITEMS };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_buffer places, known; /* of words, and what they were */
    Py_ssize_t words, first; /* first: how many are read first; the others are there while those are as they were */
    PyObject *item[ITEMS];
} Way;

static int are_as_known(const Way *way)
{
    const int64_t *place = way->places.buf;
    const uint64_t *known = way->known.buf;
    Py_ssize_t word, all = way->words, end = way->first;
    uint64_t other = 0;
    for (word = 0; word < all && word < AHEAD; word++)
        __builtin_prefetch(WORD(place[word])); /* which harms nobody where there is no memory any more */
    for (word = 0;; end = all) {
        for (; word < end; word++) {
            if (word + AHEAD < all)
                __builtin_prefetch(WORD(place[word + AHEAD]));
            other |= *WORD(place[word]) ^ known[word];
        }
        if (other != 0 || end == all)
            return other == 0;
    }
}

/* The truth of what a function without arguments says; -1: it raised an error. */
static int says(PyObject *function)
{
    PyObject *said = PyObject_CallNoArgs(function);
    int truth = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return truth;
}

/* Is nothing set around the caller, and say all other functions yes? -1: one raised an error. */
static int is_plain(const Way *way)
{
    int truth = 1;
    if (way->item[DEFAULT] != Py_None) {
        PyObject *dtype = PyObject_CallNoArgs(way->item[DEFAULT]);
        Py_XDECREF(dtype);
        if (dtype != way->item[DTYPE])
            return dtype == NULL ? -1 : 0;
        if ((truth = says(way->item[AUTOCAST])) != 0 || (truth = says(way->item[MODES])) != 0)
            return truth < 0 ? -1 : 0;
        truth = 1;
    }
    for (Py_ssize_t ask = 0; truth == 1 && ask < PyTuple_GET_SIZE(way->item[REST]); ask++)
        truth = says(PyTuple_GET_ITEM(way->item[REST], ask));
    return truth;
}

/* Are tensors of these forms, which `words.form_of` writes one after the other? */
static int are_formed(PyObject *forms, PyObject *const *arguments)
{
    const uint64_t *word = (const uint64_t *)PyBytes_AS_STRING(forms), *end = word + PyBytes_GET_SIZE(forms) / 8;
    for (; word < end; arguments++) {
        uint64_t kind = *word++, place = *word++, count = *word++;
        const uint64_t *own;
        if ((uintptr_t)Py_TYPE(*arguments) != kind)
            return 0;
        own = (const uint64_t *)((const uint64_t *)*arguments)[place];
        for (; count > 0; count--, word += 3)
            if ((own[word[0]] & word[1]) != word[2])
                return 0;
    }
    return 1;
}

/* Borrowed: what runs a call, of (how many arguments, their forms or None, a guard, what runs it, a slower guard, what
 * runs it) for each that was made; NULL: none does, or an error. */
static PyObject *maker_of(PyObject *made, PyObject *const *arguments, Py_ssize_t count)
{
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(made); number++) {
        PyObject *one = PyTuple_GET_ITEM(made, number);
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(one, 0)) != count)
            continue;
        if (PyBytes_CheckExact(PyTuple_GET_ITEM(one, 1)) && are_formed(PyTuple_GET_ITEM(one, 1), arguments))
            return PyTuple_GET_ITEM(one, 3);
        for (int guard = 2; guard < 6; guard += 2) {
            PyObject *said = PyObject_Vectorcall(PyTuple_GET_ITEM(one, guard), arguments, count, NULL);
            int truth = said == NULL ? -1 : PyObject_IsTrue(said);
            Py_XDECREF(said);
            if (truth != 0)
                return truth == 1 ? PyTuple_GET_ITEM(one, guard + 1) : NULL;
        }
    }
    return NULL;
}

static PyObject *answer(const Way *way, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    PyObject *run = way->item[RUN], *result = NULL;
    if (is_plain(way) != 1)
        return NULL;
    if (way->item[MADE] != Py_None)
        run = maker_of(way->item[MADE], arguments, count);
    if (run != NULL) {
        Py_INCREF(run);
        result = PyObject_Vectorcall(run, arguments, count, names);
        Py_DECREF(run);
    }
    return result;
}

static PyObject *call(PyObject *self, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    Way *way = (Way *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    PyObject *result = NULL, *set, *kind, *error, *trace;
    int named = names != NULL && PyTuple_GET_SIZE(names) > 0, is_model = way->item[MADE] == Py_None;
    int graded = 0;
    if ((is_model || !named) && are_as_known(way) && (graded = says(way->item[GRADIENTS])) >= 0) {
        if (graded && (set = PyObject_CallOneArg(way->item[SET_GRADIENTS], Py_False)) != NULL)
            Py_DECREF(set);
        if (!PyErr_Occurred())
            result = answer(way, arguments, count, names);
        if (graded) {
            PyErr_Fetch(&kind, &error, &trace);
            set = PyObject_CallOneArg(way->item[SET_GRADIENTS], Py_True);
            Py_XDECREF(set);
            if (set == NULL)
                Py_CLEAR(result);
            if (kind != NULL)
                PyErr_Restore(kind, error, trace);
        }
    }
    if (result != NULL)
        return result;
    if (PyErr_Occurred()) {
        if (is_model || !PyErr_ExceptionMatches(PyExc_Exception))
            return NULL;
        PyErr_Clear(); /* the long way meets it, too */
    }
    return PyObject_Vectorcall(way->item[OTHERWISE], arguments, count, names);
}

/* Way(places, known, first, items): arrays of words' places and of what they were, and a tuple as ITEMS are. */
static PyObject *make(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(named))
{
    PyObject *places, *known, *items;
    Py_ssize_t first;
    Way *way;
    if (!PyArg_ParseTuple(given, "OOnO!", &places, &known, &first, &PyTuple_Type, &items))
        return NULL;
    if (PyTuple_GET_SIZE(items) != ITEMS || !PyTuple_Check(PyTuple_GET_ITEM(items, REST))) {
        PyErr_Format(PyExc_ValueError, "expected %d items, and a tuple of what is asked", ITEMS);
        return NULL;
    }
    if ((way = (Way *)type->tp_alloc(type, 0)) == NULL)
        return NULL;
    for (int number = 0; number < ITEMS; number++)
        way->item[number] = Py_NewRef(PyTuple_GET_ITEM(items, number));
    way->vectorcall = call;
    if (PyObject_GetBuffer(places, &way->places, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(known, &way->known, PyBUF_SIMPLE) < 0) {
        Py_DECREF(way);
        return NULL;
    }
    way->words = way->places.len / (Py_ssize_t)sizeof(uint64_t);
    way->first = first;
    if (way->known.len != way->places.len || first < 0 || first > way->words) {
        Py_DECREF(way);
        PyErr_SetString(PyExc_ValueError, "expected as many words as places, and no more that are first");
        return NULL;
    }
    return (PyObject *)way;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Way *way = (Way *)self;
    Py_VISIT(way->places.obj);
    Py_VISIT(way->known.obj);
    for (int number = 0; number < ITEMS; number++)
        Py_VISIT(way->item[number]);
    return 0;
}

static int clear(PyObject *self)
{
    for (int number = 0; number < ITEMS; number++)
        Py_CLEAR(((Way *)self)->item[number]);
    return 0;
}

static void dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    PyBuffer_Release(&((Way *)self)->places);
    PyBuffer_Release(&((Way *)self)->known);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject WayType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "girih.inference.quick.Way",
    .tp_doc = "The quick way of a call.",
    .tp_basicsize = sizeof(Way),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = make,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Way, vectorcall),
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "way", .m_size = -1};

PyMODINIT_FUNC PyInit_way(void)
{
    PyObject *module = PyType_Ready(&WayType) < 0 ? NULL : PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Way", (PyObject *)&WayType) < 0)
        Py_CLEAR(module);
    return module;
}
